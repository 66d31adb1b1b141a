"use strict";
// On the page of a sweep: its report, and how the charts grow with the log.

let taking = false;
let again = false;
async function takeReport() {
  if (taking) {
    again = true;
    return;
  }
  taking = true;
  try {
    const content = await getJson(`${BASE}/report.json`);
    showProblem("report", "");
    await whenIdle();
    const first = !live.asked;
    live.asked = true;
    showReport(content);
    renewTexts();
    live.buffer = live.buffer.filter((one) => one.line > report.line);
    for (const one of live.buffer) applyEvent(one.event);
    if (live.buffer.length) growSoon();
    if (first) listen(report.line);
  } catch (error) {
    showProblem("report", error.message);
  }
  taking = false;
  if (again) {
    again = false;
    takeReport();
  }
}

// While something is dragged, the page does not change below the hand.
function whenIdle() {
  return new Promise((done) => {
    const look = () => (dragging() || document.body.dataset.pressed ? setTimeout(look, 100) : done());
    look();
  });
}
addEventListener("pointerdown", () => (document.body.dataset.pressed = "yes"));
for (const kind of ["pointerup", "pointercancel"]) addEventListener(kind, () => delete document.body.dataset.pressed);

// Lines of the log; the last of them has the number `line`.
function takeLog(data, line) {
  const texts = data.split("\n");
  texts.forEach((text, at) => {
    let event;
    try {
      event = JSON.parse(text);
    } catch {
      return; // a record that was cut off
    }
    const number = line - texts.length + at + 1;
    if (number <= report.line) return;
    live.buffer.push({ line: number, event });
    if (report.open) applyEvent(event);
  });
  if (live.grown.size) growSoon();
}

// Brings the columns of the report up to date; trials that are not in it come with the next one.
function applyEvent(event) {
  const at = placeOf(event.trial);
  if (at === undefined) return;
  if (event.event === "epoch_reported") {
    if (event.epoch <= TRIALS.epochs[at]) return;
    if (!CURVES.tails.has(at)) CURVES.tails.set(at, []);
    const metrics = Object.fromEntries(Object.entries(event.metrics).map(([name, value]) => [name, Number(value)]));
    CURVES.tails.get(at).push({ epoch: event.epoch, metrics, time_s: event.time_s, examples: event.time_s * (event.examples_per_s ?? NaN) });
    TRIALS.epochs[at] = event.epoch;
    TRIALS.status[at] = STATUSES.indexOf("running");
    TRIALS.outcome[at] = "running";
    for (const field of OBJECTIVES) if (field.name in metrics) field.values[at] = Number.isFinite(metrics[field.name]) ? metrics[field.name] : null;
  } else if (event.event === "trial_ended") {
    TRIALS.status[at] = STATUSES.indexOf(event.status);
    TRIALS.outcome[at] = event.asked ? "stopped by hand" : event.again ? "failed, tried again" : event.status;
    if (!DATA.reasons.includes(event.reason)) DATA.reasons.push(event.reason);
    TRIALS.reason[at] = DATA.reasons.indexOf(event.reason);
    closeSpans(at, event.time);
  } else {
    return;
  }
  live.grown.add(at);
}

function placeOf(trial) {
  if (live.places?.of !== TRIALS) live.places = { of: TRIALS, map: new Map(TRIALS?.trial.map((number, at) => [number, at])) };
  return live.places.map.get(trial);
}

// Draws what has grown; a drawing that takes long is followed by a longer pause.
function growSoon() {
  if (live.growing) return;
  live.growing = setTimeout(() => {
    live.growing = 0;
    if (!report.open || dragging()) {
      growSoon();
      return;
    }
    const began = performance.now();
    const trials = [...live.grown];
    live.grown.clear();
    for (const plot of plots) plot.grow(trials);
    live.spent = performance.now() - began;
  }, Math.max(GROW_MS, 4 * live.spent));
}

// What each worker did, up to now. Its axis changes with the time, so that all of it is drawn: in a large sweep less often.
function growLanes() {
  const { start, open } = report.open ? DATA.timeline : {};
  if (live.facts?.state !== "running" || !open?.length || dragging()) return;
  live.ticks = (live.ticks ?? 0) + 1;
  if (N >= LARGE && live.ticks % 10) return;
  const now = Date.now() / 1000 - live.skew - start;
  for (const plot of plots) plot.growTo?.(now);
}

// A trial that has ended is drawn up to its end.
function closeSpans(trial, time) {
  const { spans, open, start } = DATA.timeline;
  const closed = open.filter((at) => spans.row[at] === trial);
  for (const at of closed) spans.end[at] = Math.max(time - start, spans.begin[at]);
  if (closed.length) DATA.timeline.open = open.filter((at) => !closed.includes(at));
}
