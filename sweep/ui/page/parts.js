"use strict";
// The parts of the report: what says something is replaced by the new text, what draws stays and gets new data.

// Parts that have a place of their own: the answer is what a person came for, and is near the top.
const PLACES = { answer: "answer-place", question: "facts-place", facts: "facts-place", timeline: "lanes-place" };

function placeFor(name) {
  return name in PLACES ? find(PLACES[name]) : null;
}

// Puts the parts of a new report into the page.
function mergeParts(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html").body;
  const counts = new Map();
  let last = null;
  const kept = new Set();
  for (const part of [...fresh.children]) {
    const name = part.dataset.part;
    const count = counts.get(name) ?? 0;
    counts.set(name, count + 1);
    part.dataset.key = `${name} ${count}`;
    if (name === "noscript") continue;
    kept.add(part.dataset.key);
    const before = document.querySelector(`[data-key="${CSS.escape(part.dataset.key)}"]`);
    const place = placeFor(name);
    if (before && place) {
      mergePart(before, part);
      continue;
    }
    if (place) {
      if (name === "answer") place.replaceChildren(part);
      else place.append(part);
      continue;
    }
    const there = before ? mergePart(before, part) : part;
    if (there.parentElement !== find("report") || there.previousElementSibling !== last) {
      if (last) last.after(there);
      else find("report").prepend(there);
    }
    last = there;
  }
  for (const part of [...find("report").children]) if (!kept.has(part.dataset.key)) part.remove();
  for (const id of ["answer-place", "report"]) find(id).removeAttribute("aria-busy");
}

// Returns the part that is in the page now.
function mergePart(before, part) {
  if (["bar", "said", "tip"].includes(part.dataset.part)) return before;
  if (before.querySelector(".plot, .grid, select, input, #ranking")) {
    mergeNotes(before, part);
    return before;
  }
  const open = [...before.querySelectorAll("details")].map((one) => one.open);
  if (open.some(Boolean)) [...part.querySelectorAll("details")].forEach((one, at) => (one.open = open[at] ?? false));
  if (before.innerHTML === part.innerHTML) return before;
  before.replaceChildren(...part.childNodes);
  return before;
}

// The notes at the end of a part with charts, without those that a chart has put below itself.
function notesOf(part) {
  return [...part.querySelectorAll(":scope > p.note:not(.outside), :scope > p:not([class])")];
}

function mergeNotes(before, part) {
  const [notes, fresh] = [notesOf(before), notesOf(part)];
  fresh.forEach((note, at) => {
    if (!notes[at]) before.append(note);
    else if (notes[at].innerHTML !== note.innerHTML) notes[at].replaceChildren(...note.childNodes);
  });
  for (const note of notes.slice(fresh.length)) note.remove();
}

const report = { line: 0, open: false };

// Shows a report: for the first time, or with what was selected and chosen before.
function showReport(content) {
  mergeParts(content.html);
  const known = report.open ? TRIALS : null;
  const outline = report.open ? report.outline : "";
  readData(content.data);
  keepOrder();
  report.line = content.line;
  if (N && !report.open) {
    report.open = true;
    openReport();
    selection.listeners.push(showChosen);
    find("theme").addEventListener("click", keepTheme);
  } else if (N) {
    renewReport(known, outline);
  }
  if (N) report.outline = outlineReport();
  document.documentElement.dataset.ready = "yes";
}

// Parameters stay in their order, though what matters most may change.
function keepOrder() {
  const names = PARAMS.map((field) => field.name);
  const order = [...(report.order ?? []).filter((name) => names.includes(name)), ...names.filter((name) => !report.order?.includes(name))];
  PARAMS.sort((one, other) => order.indexOf(one.name) - order.indexOf(other.name));
  FIELDS = [...OBJECTIVES, ...PARAMS];
  report.order = order;
}

// What one can do with the selected trials.
function showChosen(settled) {
  if (!settled) return;
  const line = find("chosen");
  const chosen = selection.order.slice(-4).reverse();
  line.hidden = !selection.count || selection.count > 4;
  if (line.hidden) return;
  const address = (trial) => `${ROOT}${encodeURIComponent(DATA.sweeps[TRIALS.sweep[trial]].name)}/${TRIALS.trial[trial]}`;
  const links = chosen.map((trial) => make("a", { href: address(trial) }, `trial ${TRIALS.trial[trial]}`));
  if (chosen.length === 2 && TRIALS.sweep[chosen[0]] === TRIALS.sweep[chosen[1]]) {
    links.push(make("a", { href: `${address(chosen[0])}?beside=${TRIALS.trial[chosen[1]]}` }, "compare the two"));
  }
  if (chosen.length === 1) links.push(...addLikeIt());
  line.replaceChildren(make("span", { class: "note" }, "selected:"), ...links);
}

// The form of a new configuration, filled in with the one that is selected.
function addLikeIt() {
  const add = acts.offered.find((act) => act.name === "add");
  if (!add || !isPossible(add)) return [];
  const button = make("button", { type: "button" }, "Add a configuration like it");
  button.addEventListener("click", () => beginAct(add, button));
  return [button];
}
