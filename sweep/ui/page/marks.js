"use strict";
// On the page of a sweep: notes and stars, and what the forms of its acts are filled in with.

// ---- what a person has put on it ------------------------------------------------------------------------------------

function showNote(facts) {
  const line = find("note");
  line.hidden = !facts.note;
  if (line.dataset.note === facts.note && line.dataset.offered === String(acts.offered.length)) return;
  Object.assign(line.dataset, { note: facts.note, offered: acts.offered.length });
  if (facts.note) line.replaceChildren(make("span", { class: "note" }, "note"), ...noteParts(facts.note, acts.done, acts.mark).filter(Boolean));
}

const UNMARKED = { starred: false, note: "" };
function markOf(number) {
  return live.marks?.get(number) ?? UNMARKED;
}

function showMarks(before, facts) {
  live.marks = new Map(facts.marks.map((one) => [one.trial, one]));
  if (report.open && JSON.stringify(before?.marks) !== JSON.stringify(facts.marks)) showRows();
}

// What was carried out is shown at once, before the log is read again.
function noteAct(act, done, given) {
  if (!live.facts || !["note", "star"].includes(act.command)) return;
  const facts = { ...live.facts };
  if (done.trial === undefined) {
    facts.note = markAfter(acts.mark, act, given).note;
  } else {
    const mark = { ...markAfter(markOf(done.trial), act, given), trial: done.trial };
    facts.marks = [...facts.marks.filter((one) => one.trial !== done.trial), mark];
  }
  const before = live.facts;
  live.facts = facts;
  acts.mark.note = facts.note;
  showNote(facts);
  showMarks(before, facts);
}

// In the ranking: of a configuration with several trials, the first one with a star or a note, or else the first.
function markedTrial(row, holds) {
  const numbers = DATA.table.trials[row].map((at) => TRIALS.trial[at]);
  return numbers.find((number) => holds(markOf(number))) ?? numbers[0];
}

const SHOWN_TRIALS = 8;
// Links to the trials of a configuration, one for each seed; sorted by the first number.
function trialCell(row) {
  const numbers = DATA.table.trials[row].map((at) => TRIALS.trial[at]);
  const links = numbers.slice(0, SHOWN_TRIALS).flatMap((number, at) => [at ? ", " : "", trialLink(number, String(number))]);
  for (const link of links) if (link.addEventListener) link.addEventListener("click", (event) => event.stopPropagation());
  return { text: String(numbers[0] ?? "").padStart(9, "0"), elements: [...links, numbers.length > SHOWN_TRIALS ? " ..." : ""] };
}

function starCell(row) {
  const number = markedTrial(row, (mark) => mark.starred);
  const mark = markOf(number);
  const button = placedButton(mark.starred ? "remove_star" : "star", { sweep: NAME, trial: number }, mark, mark.starred ? "★" : "☆");
  return { text: mark.starred ? "*" : "", elements: [button ?? (mark.starred ? "★" : "")] };
}

function noteCell(row) {
  const number = markedTrial(row, (mark) => mark.note);
  const mark = markOf(number);
  const parts = noteParts(mark.note, { sweep: NAME, trial: number }, mark).filter(Boolean);
  return { text: mark.note, elements: [make("span", { class: "noted", title: mark.note || null }, parts)] };
}

// ---- what forms are filled in with ----------------------------------------------------------------------------------

// For a configuration to add: that of the one selected trial, or else of the best one, to be changed. For a change: the
// present values of what may change.
async function readFormLines(act) {
  const lines = await getJson(`${BASE}/lines.json`).catch(() => null);
  if (!lines) return {};
  if (act.name !== "add") return { hints: lines.keys, canBeTaken: true, about: "What may change, as it is now. Take a line and change it:" };
  const filled = selectedSettings() ?? lines.configuration;
  return { filled: filled.join("\n"), hints: lines.parameters, canBeTaken: false, about: "What each parameter may be:" };
}

function selectedSettings() {
  if (!report.open || selection.count !== 1) return null;
  const trial = selection.order[0];
  const set = PARAMS.filter((field) => shown(field, trial) !== "not set");
  return set.map((field) => `${field.name}=${field.labels ? field.written[field.values[trial]] : field.values[trial]}`);
}
