"use strict";
// What can be done: each act is a command line of sweep, which is shown and which the server runs.

// `mark`: the star and the note of what the page shows. `lines`: by act, lines for its form. `ended`: called after an
// act was carried out.
const acts = { offered: [], done: {}, state: "", counts: {}, trial: null, mark: { starred: false, note: "" }, lines: async () => ({}), ended: () => {} };

// The acts of a sweep that are not below "More", in this order. Each has its place, whether it is possible now or not,
// so that none stands where another one was a moment ago. What stops something is last, and apart.
const PRIMARY = ["resume", "add", "change"];
const AT_THE_NOTE = ["remove_note", "remove_note_trial"]; // stand beside the note

// `done`: to what, {sweep, trial}.
async function openActs(done) {
  acts.done = done;
  const [offered] = await Promise.all([getJson(`${ROOT}${encodeURIComponent(done.sweep)}/-/acts.json`), restoreJobs(done)]);
  acts.offered = offered;
  showActs();
}

function scopeOf(done) {
  return done.trial === undefined ? "sweep" : "trial";
}

function isPossible(act) {
  if (!act.states.includes(acts.state)) return false;
  if (act.needs && !hasNeeded(act.needs)) return false;
  if (act.name === "resume" && acts.isOver) return false;
  return act.scope === "sweep" || !act.trials.length || act.trials.includes(acts.trial);
}

function hasNeeded(name) {
  if (name === "failed" || name === "completed") return (acts.counts[name] ?? 0) > 0;
  if (name === "note") return acts.mark.note !== "";
  return acts.mark.starred === (name === "star");
}

// Why an act is not possible now.
function explainAct(act) {
  if (act.name === "resume" && acts.isOver) return "it is finished; Extend it, or add a configuration";
  if (acts.state === "reading") return "once the log has been read";
  if (!act.states.includes(acts.state)) return act.states.includes("running") ? "only while the sweep runs" : "only while the sweep does not run";
  return `only of a trial that is ${act.trials.join(" or ")}`;
}

function named(act, done = acts.done) {
  return act.label.replace("{sweep}", done.sweep).replace("{trial}", done.trial ?? "");
}

// On the page of one sweep, its name is not repeated.
function shortName(act, done = acts.done) {
  return named({ label: act.label.replace(/( of| on| to)? \{sweep\}/, "") }, done);
}

function stops(act) {
  return act.command === "stop";
}

function showActs() {
  const known = acts.offered.filter((act) => act.scope === scopeOf(acts.done) && !AT_THE_NOTE.includes(act.name));
  const key = JSON.stringify([known.map((act) => [act.name, isPossible(act)]), acts.done]);
  if (key === acts.shown) return;
  acts.shown = key;
  find("acts").hidden = !known.length;
  const isApart = (act) => act.name === "stop" || act.name === "stop_trial";
  const isFirst = (act) => PRIMARY.includes(act.name) || (act.scope === "trial" && !stops(act));
  const first = known.filter((act) => isFirst(act) && (isPossible(act) || !act.needs));
  if (scopeOf(acts.done) === "sweep") first.sort((one, other) => PRIMARY.indexOf(one.name) - PRIMARY.indexOf(other.name));
  const others = known.filter((act) => !isFirst(act) && !isApart(act) && isPossible(act));
  others.sort((one, other) => stops(one) - stops(other));
  const shown = first.map((act) => actButton(act));
  if (others.length) shown.push(moreActs(others));
  const apart = known.filter(isApart).map((act) => actButton(act));
  if (apart.length) shown.push(make("span", { class: "apart" }, apart));
  replaceHeld(find("buttons"), shown);
  const possible = known.filter(isPossible);
  const plain = possible.find((act) => !act.fields.length) ?? possible[0];
  if (plain) previewAct(plain);
}

// Replaces elements, and keeps the focus on the act that had it.
function replaceHeld(place, elements) {
  const held = place.contains(document.activeElement) ? document.activeElement.dataset.act : null;
  place.replaceChildren(...elements);
  if (held) place.querySelector(`[data-act="${held}"]`)?.focus({ preventScroll: true });
}

function moreActs(others) {
  const more = make("details", { class: "more" }, make("summary", {}, "More"), make("div", { class: "menu" }, others.map((act) => actButton(act))));
  more.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !more.open) return;
    more.open = false;
    more.firstChild.focus();
  });
  return more;
}

function actButton(act) {
  const button = make("button", { type: "button", "data-act": act.name }, shortName(act));
  button.disabled = !isPossible(act);
  if (button.disabled) button.title = explainAct(act);
  for (const kind of ["focus", "pointerenter"]) button.addEventListener(kind, () => !button.disabled && previewAct(act));
  button.addEventListener("click", () => {
    const menu = button.closest("details");
    if (menu) menu.open = false;
    beginAct(act, menu?.firstChild ?? button);
  });
  return button;
}

function beginAct(act, back) {
  if (act.fields.length || act.asks) askFor(act, back);
  else doAct(act, {}).catch((error) => showWrong(error.message));
}

// A button that stands at what it changes, in the ranking or beside a note. `done`: to what; `mark`: its star and note;
// `text`: what is seen, where the place says the rest. The command line is shown as that of the other buttons.
function placedButton(name, done, mark, text) {
  const act = acts.offered.find((one) => one.name === name);
  if (!act) return null;
  const button = make("button", { type: "button", class: "placed", "data-placed": name, "aria-label": named(act, done), title: named(act, done) }, text);
  for (const kind of find("command") ? ["focus", "pointerenter"] : []) button.addEventListener(kind, () => previewAct(act, done));
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    const asked = { act, done, mark };
    if (act.fields.length) askFor(act, button, asked);
    else doAct(act, {}, asked).catch((error) => showWrong(error.message));
  });
  button.addEventListener("keydown", (event) => event.stopPropagation());
  return button;
}

// A note with what can be done to it.
function noteParts(note, done, mark) {
  const suffix = done.trial === undefined ? "" : "_trial";
  const parts = note ? [make("span", { class: "note-text" }, note)] : [];
  parts.push(placedButton(`note${suffix}`, done, mark, note ? "edit" : "add a note"));
  if (note) parts.push(placedButton(`remove_note${suffix}`, done, mark, "remove"));
  return parts;
}

// What was refused before a command line was run; the next one replaces it.
function showWrong(text) {
  hear(text);
  forgetWrong();
  find("jobs").prepend(make("p", { class: "wrong", role: "alert" }, text));
  showJobs();
}

function forgetWrong() {
  find("jobs").querySelector(":scope > .wrong")?.remove();
  showJobs();
}

// The command line of an act that asks for nothing, or what it begins with.
async function previewAct(act, done = acts.done) {
  const given = Object.fromEntries(act.fields.map((field) => [field.name, field.required ? field.hint || "..." : ""]));
  try {
    const found = await post(addressOf(act, done), { ...targets(done), ...given, preview: "yes" });
    tell(find("command"), found.command || found.wrong);
  } catch (error) {
    tell(find("command"), error.message);
  }
}

function targets(done) {
  return done.trial === undefined ? {} : { trial: String(done.trial) };
}

function addressOf(act, done) {
  return `${ROOT}${encodeURIComponent(done.sweep)}/-/acts/${act.name}`;
}

// `back`: what has the focus afterwards. `asked`: to what it is done, and its marks, where not to what the page shows.
async function askFor(act, back, asked = { done: acts.done, mark: acts.mark }) {
  const dialog = find("asking");
  const { done, mark } = asked;
  const lines = act.fields.some((field) => field.kind === "lines") ? await acts.lines(act) : {};
  const inputs = act.fields.map((field) => fieldInput(field, filledIn(act, field, lines, mark), lines));
  const line = make("output", { class: "command" });
  const note = make("p", { class: "note", role: "status" });
  const wrong = make("p", { class: "wrong", role: "alert" });
  const cancel = make("button", { type: "button", value: "cancel", autofocus: Boolean(act.asks) }, "Cancel");
  const form = make(
    "form",
    { class: "asking", method: "dialog" },
    make("h2", { id: "asking-title" }, named(act, done)),
    act.asks ? make("p", {}, act.asks) : null,
    act.name === "export" && acts.best ? make("p", {}, acts.best) : null,
    ...inputs.map((input) => input.label),
    make("p", { class: "note" }, "This command is run:"),
    line,
    note,
    wrong,
    make("div", { class: "tools" }, make("button", { type: "submit", class: "strong" }, named(act, done)), cancel),
  );
  const begin = form.querySelector("button[type=submit]");
  const read = () => Object.fromEntries(act.fields.map((field, at) => [field.name, inputs[at].read()]));
  let waiting = 0;
  let asking = null;
  // What the server says of the fields as they are now; an answer about older ones is given up.
  const preview = async () => {
    asking?.abort();
    const mine = (asking = new AbortController());
    try {
      const found = await post(addressOf(act, done), { ...targets(done), ...read(), preview: "yes" }, mine.signal);
      tell(line, found.command || found.wrong);
      tell(note, found.note || "");
      tell(wrong, found.command ? found.wrong : "");
      begin.disabled = Boolean(found.command && found.wrong);
    } catch (error) {
      if (!mine.signal.aborted) tell(line, error.message);
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    begin.disabled = false; // until the fields have been checked; the command checks them once more
    waiting = setTimeout(preview, 150);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await doAct(act, read(), asked);
      dialog.close();
    } catch (error) {
      tell(wrong, error.message);
    }
  });
  cancel.addEventListener("click", () => dialog.close());
  dialog.onclose = () => back?.focus();
  dialog.replaceChildren(form);
  dialog.showModal();
  preview();
}

// What a field holds at first.
function filledIn(act, field, lines, mark) {
  if (act.command === "note") return mark.note.replace(/\s*\n\s*/g, " "); // a field of one line would join its words
  return act.name === "add" && field.kind === "lines" ? lines.filled ?? "" : "";
}

function fieldInput(field, text, lines) {
  const id = `field-${field.name}`;
  if (field.kind === "flag") {
    const input = make("input", { type: "checkbox", id });
    return { label: make("label", { class: "check", for: id }, input, field.label), read: () => (input.checked ? "yes" : "") };
  }
  const hint = hintOf(field, lines);
  const attributes = { id, placeholder: hint, required: field.required, autocomplete: "off", spellcheck: "false" };
  const input = field.kind === "lines" ? make("textarea", { ...attributes, rows: "5", wrap: "off" }) : make("input", { ...attributes, type: field.kind === "number" ? "number" : "text", min: field.kind === "number" ? "1" : null });
  input.value = text;
  const label = make("label", { class: "field", for: id }, field.label, input);
  const offered = field.kind === "lines" && lines.hints?.length ? offeredLines(input, lines) : null;
  return { label: offered ? make("div", {}, label, offered) : label, read: () => input.value };
}

// An example, or what holds now.
function hintOf(field, lines) {
  if (field.kind === "lines" && lines.canBeTaken) return lines.hints[0] ?? field.hint;
  const present = lines.hints?.find((text) => text.startsWith(`${field.name}=`));
  return present ? `now ${present.split("=")[1]}` : field.hint;
}

// Lines of this sweep below a field; a click puts one into it, to be changed there.
function offeredLines(input, lines) {
  const items = lines.hints.map((text) => {
    if (!lines.canBeTaken) return make("li", {}, make("code", {}, text));
    const button = make("button", { type: "button", class: "plain-button" }, make("code", {}, text));
    button.addEventListener("click", () => {
      const before = input.value.replace(/\s+$/, "");
      input.value = before ? `${before}\n${text}` : text;
      input.dispatchEvent(new Event("input", { bubbles: true }));
      input.focus();
    });
    return make("li", {}, button);
  });
  return make("div", { class: "offered" }, make("p", { class: "note" }, lines.about), make("ul", { class: "plain-list", tabindex: lines.canBeTaken ? null : "0" }, items));
}

async function doAct(act, given, asked = { done: acts.done }) {
  const job = await post(addressOf(act, asked.done), { ...targets(asked.done), ...given });
  followJob(job, (facts) => facts.exit_code === 0 && acts.ended(act, asked.done, given));
}

// The star and the note after an act was carried out.
function markAfter(mark, act, given) {
  if (act.command === "star") return { ...mark, starred: act.name === "star" };
  return act.command === "note" ? { ...mark, note: given.text?.trim() ?? "" } : mark;
}

// The command lines that were started for a sweep, a trial or a file are shown again when one comes back to its page.
async function restoreJobs(subject) {
  const jobs = await getJson(`${ROOT}-/jobs.json?${new URLSearchParams(subject)}`);
  for (const job of jobs) if (!panelOf(job)) followJob(job);
  acts.restored = true;
}

function panelOf(job) {
  return find("jobs").querySelector(`[data-job="${job.job}"]`);
}

function showJobs() {
  find("jobs").hidden = !find("jobs").children.length;
}

const READ = ["Plan"]; // is done to be read, and stays open

// A command line that runs: what it says, until it has ended. One that succeeded takes one line, which can be opened.
function followJob(job, ended = () => {}) {
  const outcome = make("span", { class: "outcome" });
  const first = make("span", { class: "note" });
  const output = make("pre", { tabindex: "0", "aria-label": `Output of ${job.command}` });
  const line = make("p", { class: "note" }, make("code", {}, job.command));
  const parts = make("details", { open: true }, make("summary", {}, make("strong", {}, job.title), " ", outcome, " ", first), line, output);
  const away = make("button", { type: "button", class: "quiet", "aria-label": `Dismiss: ${job.title}` }, "×");
  const panel = make("article", { class: "job", "data-job": String(job.job), "data-title": job.title }, parts, away);
  away.addEventListener("click", () => dismissJob(panel));
  find("jobs").prepend(panel);
  showJobs();
  const show = (facts) => {
    tell(output, facts.output);
    output.hidden = !facts.output;
    const running = facts.exit_code === null;
    const succeeded = facts.exit_code === 0;
    panel.dataset.code = running ? "" : String(facts.exit_code);
    tell(outcome, outcomeOf(facts));
    if (running) return true;
    parts.open = !succeeded || READ.includes(job.title);
    if (succeeded && !parts.open) tell(first, facts.output.trim().split("\n")[0]);
    panel.append(...watchLinks(facts));
    hear(`${job.title}: ${outcome.textContent}`);
    ended(facts);
    return false;
  };
  const again = async () => {
    let running = true;
    try {
      running = show(await getJson(`${ROOT}-/jobs/${job.job}`));
    } catch (error) {
      tell(outcome, error.message || "no answer from the server");
    }
    if (running && panel.isConnected) setTimeout(again, 700);
  };
  if (show(job)) setTimeout(again, 300);
}

function outcomeOf(facts) {
  if (facts.exit_code === null) return `runs, ${inTime(facts.took_s)}`;
  if (facts.exit_code !== 0) return `ended with exit code ${facts.exit_code}`;
  return facts.detaches ? "started" : "done";
}

// A link to another sweep that a command line has started in the background.
function watchLinks(facts) {
  const name = /^started\s+(.+) in the background/m.exec(facts.output)?.[1];
  if (facts.exit_code !== 0 || !name || name === acts.done.sweep) return [];
  return [make("a", { class: "button", href: `${ROOT}${encodeURIComponent(name)}` }, `Watch ${name}`)];
}

function dismissJob(panel) {
  panel.remove();
  showJobs();
  post(`${ROOT}-/jobs/${panel.dataset.job}/dismiss`, {}).catch((error) => hear(error.message));
}
