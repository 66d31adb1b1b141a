"use strict";
// What can be done: each act is a command line of sweep, which is shown and which the server runs.

const acts = { offered: [], address: "", done: {}, state: "", trial: null, prefill: () => ({}) };

const PRIMARY = ["stop", "resume", "add", "change"]; // of a sweep, and not below "More"; of a trial, all are

// `done`: to what, {sweep, trial}.
async function openActs(done) {
  acts.address = `${ROOT}${encodeURIComponent(done.sweep)}/-/acts`;
  acts.done = done;
  acts.offered = await getJson(`${acts.address}.json`);
  showActs();
}

function isPossible(act) {
  const scope = acts.done.trial === undefined ? "sweep" : "trial";
  if (act.scope !== scope || !act.states.includes(acts.state)) return false;
  return scope === "sweep" || !act.trials.length || act.trials.includes(acts.trial);
}

function named(act) {
  return act.label.replace("{sweep}", acts.done.sweep).replace("{trial}", acts.done.trial ?? "");
}

function showActs() {
  const possible = acts.offered.filter(isPossible);
  const key = JSON.stringify([possible.map((act) => act.name), acts.done]);
  if (key === acts.shown) return;
  acts.shown = key;
  find("acts").hidden = !possible.length;
  const isFirst = (act) => act.scope === "trial" || PRIMARY.includes(act.name);
  const first = possible.filter(isFirst);
  const others = possible.filter((act) => !isFirst(act));
  const more = make("details", { class: "more" }, make("summary", {}, "More"), make("div", { class: "menu" }, others.map(actButton)));
  more.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !more.open) return;
    more.open = false;
    more.firstChild.focus();
  });
  const shown = first.map(actButton);
  if (others.length) shown.push(more);
  find("buttons").replaceChildren(...shown);
  if (possible.length) previewAct(first[0] ?? possible[0]);
}

function actButton(act) {
  const button = make("button", { type: "button", "data-act": act.name }, named(act));
  for (const kind of ["focus", "pointerenter"]) button.addEventListener(kind, () => previewAct(act));
  button.addEventListener("click", () => {
    const menu = button.closest("details");
    if (menu) menu.open = false;
    if (act.fields.length || act.asks) askFor(act, menu?.firstChild ?? button);
    else doAct(act, {});
  });
  return button;
}

// The command line of an act that asks for nothing, or what it begins with.
async function previewAct(act) {
  const given = Object.fromEntries(act.fields.map((field) => [field.name, field.required ? field.hint || "..." : ""]));
  try {
    const found = await post(`${acts.address}/${act.name}`, { ...targets(), ...given, preview: "yes" });
    tell(find("command"), found.command || found.wrong);
  } catch (error) {
    tell(find("command"), error.message);
  }
}

function targets() {
  return acts.done.trial === undefined ? {} : { trial: String(acts.done.trial) };
}

function askFor(act, back) {
  const dialog = find("asking");
  const filled = acts.prefill(act);
  const inputs = act.fields.map((field) => fieldInput(field, filled[field.name] ?? ""));
  const line = make("output", { class: "command" });
  const note = make("p", { class: "note", role: "status" });
  const wrong = make("p", { class: "wrong", role: "alert" });
  const form = make(
    "form",
    { class: "asking", method: "dialog" },
    make("h2", { id: "asking-title" }, named(act)),
    act.asks ? make("p", {}, act.asks) : null,
    ...inputs.map((input) => input.label),
    make("p", { class: "note" }, "It runs"),
    line,
    note,
    wrong,
    make("div", { class: "tools" }, make("button", { type: "submit", class: "strong" }, named(act)), make("button", { type: "button", value: "cancel" }, "Leave it")),
  );
  const read = () => Object.fromEntries(act.fields.map((field, at) => [field.name, inputs[at].read()]));
  let waiting = 0;
  const preview = async () => {
    try {
      const found = await post(`${acts.address}/${act.name}`, { ...targets(), ...read(), preview: "yes" });
      tell(line, found.command || found.wrong);
      tell(note, found.note || "");
      tell(wrong, "");
    } catch (error) {
      tell(line, error.message);
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(preview, 150);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await doAct(act, read());
      dialog.close();
    } catch (error) {
      tell(wrong, error.message);
    }
  });
  form.querySelector("button[value=cancel]").addEventListener("click", () => dialog.close());
  dialog.onclose = () => back?.focus();
  dialog.replaceChildren(form);
  dialog.showModal();
  preview();
}

function fieldInput(field, text) {
  const id = `field-${field.name}`;
  if (field.kind === "flag") {
    const input = make("input", { type: "checkbox", id });
    return { label: make("label", { class: "check", for: id }, input, field.label), read: () => (input.checked ? "yes" : "") };
  }
  const attributes = { id, placeholder: field.hint, required: field.required, autocomplete: "off", spellcheck: "false" };
  const input = field.kind === "lines" ? make("textarea", { ...attributes, rows: "5" }) : make("input", { ...attributes, type: field.kind === "number" ? "number" : "text", min: field.kind === "number" ? "1" : null });
  input.value = text;
  return { label: make("label", { class: "field", for: id }, field.label, input), read: () => input.value };
}

async function doAct(act, given) {
  const job = await post(`${acts.address}/${act.name}`, { ...targets(), ...given });
  followJob(job, named(act));
}

// A command line that runs: what it says, until it has ended.
function followJob(job, title, ended = () => {}) {
  const head = make("p", {}, make("strong", {}, title), " ", make("span", { class: "outcome" }));
  const line = make("p", { class: "note" }, make("code", {}, job.command));
  const output = make("pre", { tabindex: "0", "aria-label": `Output of ${job.command}` });
  const away = make("button", { type: "button", class: "quiet", "aria-label": `Take away: ${title}` }, "×");
  const panel = make("article", { class: "job", "data-job": String(job.job) }, away, head, line, output);
  away.addEventListener("click", () => {
    panel.remove();
    find("jobs").hidden = !find("jobs").children.length;
  });
  find("jobs").prepend(panel);
  find("jobs").hidden = false;
  const outcome = head.querySelector(".outcome");
  const show = (facts) => {
    tell(output, facts.output);
    output.hidden = !facts.output;
    const running = facts.exit_code === null;
    panel.dataset.code = running ? "" : String(facts.exit_code);
    tell(outcome, running ? `runs, ${inTime(facts.took_s)}` : facts.exit_code === 0 ? "done" : `ended with exit code ${facts.exit_code}`);
    if (!running) {
      hear(`${title}: ${outcome.textContent}`);
      ended(facts);
    }
    return running;
  };
  const again = async () => {
    let running = true;
    try {
      running = show(await getJson(`${ROOT}-/jobs/${job.job}`));
    } catch (error) {
      tell(outcome, error.message || "cannot be asked for");
    }
    if (running && panel.isConnected) setTimeout(again, 700);
  };
  if (show(job)) setTimeout(again, 300);
}
