"use strict";
// Which trials are selected, by which chart, and which one is looked at. Charts and the table listen.

const selection = {
  mask: null, // Uint8Array by trial, or null: nothing is selected
  count: 0,
  order: [], // the selected ones, the worst first
  version: 0, // counts the changes
  source: null, // what made the last one
  current: -1, // the trial under the pointer, or of the keyboard
  parts: new Map(), // by source: its mask; more than one where selections are combined
  listeners: [],
};

// `source` has `forget()`: takes away its own box or ranges.
function select(source, mask, settled = true) {
  const combined = document.getElementById("combine")?.checked;
  for (const other of [...selection.parts.keys()]) {
    if (other !== source && !combined) {
      selection.parts.delete(other);
      other.forget?.();
    }
  }
  if (mask) selection.parts.set(source, mask);
  else selection.parts.delete(source);
  const masks = [...selection.parts.values()];
  selection.mask = masks.length ? masks[0].slice() : null;
  for (const other of masks.slice(1)) {
    for (let at = 0; at < N; at++) selection.mask[at] &= other[at];
  }
  selection.order = selection.mask ? ORDER.filter((trial) => selection.mask[trial]) : [];
  selection.count = selection.order.length;
  selection.version++;
  selection.source = source;
  notify(settled);
}

function clearSelection() {
  const sources = [...selection.parts.keys()];
  selection.parts.clear();
  for (const source of sources) source.forget?.();
  selection.mask = null;
  selection.order = [];
  selection.count = 0;
  selection.version++;
  notify(true);
}

// Marks trials by their number in the document; `added`: beside those that the source has already.
function selectTrials(source, trials, added = false) {
  const before = added ? selection.parts.get(source) : null;
  const mask = before ? before.slice() : new Uint8Array(N);
  const all = trials.every((trial) => mask[trial]);
  for (const trial of trials) mask[trial] = before && all ? 0 : 1;
  select(source, mask.some(Boolean) ? mask : null);
}

// After `readData`: the same trials stay selected. `known`: the columns of the document before.
function keepSelection(known) {
  const place = new Map(known.trial.map((number, at) => [`${known.sweep[at]} ${number}`, at]));
  const before = TRIALS.trial.map((number, at) => place.get(`${TRIALS.sweep[at]} ${number}`) ?? -1);
  for (const [source, mask] of selection.parts) {
    selection.parts.set(source, Uint8Array.from(before, (at) => (at < 0 ? 0 : mask[at])));
  }
  if (selection.mask) {
    const { mask } = selection;
    selection.mask = Uint8Array.from(before, (at) => (at < 0 ? 0 : mask[at]));
    selection.order = ORDER.filter((trial) => selection.mask[trial]);
    selection.count = selection.order.length;
  }
  selection.current = -1;
  selection.version++;
}

let waiting = false;
let unsettled = false;
function notify(settled) {
  unsettled = !settled;
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const listener of selection.listeners) listener(!unsettled);
  });
}

function dragging() {
  return unsettled;
}

function setCurrent(trial) {
  if (selection.current === trial) return;
  selection.current = trial;
  notify(!unsettled);
}

// One source for what is clicked on, wherever: a second click with Ctrl or Shift adds.
const picked = {};

function clicked(trial, event) {
  const added = Boolean(event && (event.ctrlKey || event.metaKey || event.shiftKey));
  if (trial >= 0) selectTrials(picked, [trial], added);
  else if (!added) clearSelection();
}

// Where a line is at `x`, between the corner before `at` and that at `at`.
function heightAt(path, at, x) {
  if (at < 2) return path[1];
  const share = (x - path[at - 2]) / (path[at] - path[at - 2] || 1);
  return path[at - 1] + Math.max(0, Math.min(1, share)) * (path[at + 1] - path[at - 1]);
}

function crosses(path, at, inside) {
  for (const share of [0.2, 0.4, 0.6, 0.8]) {
    const x = path[at - 2] + share * (path[at] - path[at - 2]);
    const y = path[at - 1] + share * (path[at + 1] - path[at - 1]);
    if (inside(x, y)) return true;
  }
  return false;
}
