"use strict";
// A sweep file that is written here: checked while it is typed, priced, and run.

const text = find("text");
// `check`: the check that is under way, which can be given up.
const draft = { lines: 0, wrong: new Set(), pause: 0, check: null, kept: text.value };

openPlainTheme();
openStream(`${ROOT}-/quiet`, {});
text.addEventListener("input", () => {
  tell(find("saved"), "");
  showNumbers();
  checkSoon();
});
text.addEventListener("scroll", () => (find("numbers").scrollTop = text.scrollTop));
offerProposals(text);
text.addEventListener("keydown", indent);
find("file").addEventListener("input", () => {
  forgetWrong(); // it may have been about the name
  checkSoon();
  showRunLine();
});
find("plan").addEventListener("click", () => planDraft({}));
find("time").addEventListener("click", () => planDraft({ time: "yes" }));
find("run").addEventListener("click", runDraft);
if (document.body.dataset.readOnly) {
  for (const id of ["plan", "time", "run", "save"]) find(id).disabled = true;
}
find("save").addEventListener("click", () => saveDraft().catch((error) => showWrong(error.message)));
find("open").addEventListener("change", openFile);
listFiles();
restoreJobs({ file: find("file").value }).then(() => (find("hint").hidden = !find("jobs").hidden), (error) => hear(error.message));
showNumbers();
check();
showRunLine();

// Two spaces, as in sweep files; Escape and then Tab leaves the editor.
function indent(event) {
  if (event.defaultPrevented) return; // a proposal was chosen
  if (event.key === "Escape") draft.leaving = true;
  else if (event.key === "Tab" && !event.shiftKey && !draft.leaving) {
    event.preventDefault();
    text.setRangeText("  ", text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new Event("input"));
  } else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
    const before = text.value.slice(0, text.selectionStart).split("\n").pop();
    const margin = /^ */.exec(before)[0] + (/:\s*$/.test(before) ? "  " : "");
    event.preventDefault();
    text.setRangeText(`\n${margin}`, text.selectionStart, text.selectionEnd, "end");
    text.dispatchEvent(new Event("input"));
  } else draft.leaving = false;
}

function showNumbers() {
  const count = text.value.split("\n").length;
  const marks = [...draft.wrong].sort().join();
  if (count === draft.lines && marks === draft.marks) return;
  [draft.lines, draft.marks] = [count, marks];
  const rows = Array.from({ length: count }, (_, at) => make("span", { class: draft.wrong.has(at + 1) ? "wrong" : null }, `${at + 1}\n`));
  find("numbers").replaceChildren(...rows);
  find("numbers").scrollTop = text.scrollTop;
}

function checkSoon() {
  giveUpCheck();
  draft.pause = setTimeout(check, 350);
}

// What is shown belongs to an older text, until the new one has been checked.
function giveUpCheck() {
  clearTimeout(draft.pause);
  draft.check?.abort();
  draft.check = null;
  find("mistakes").classList.add("older");
  find("verdict").classList.remove("wrong");
  tell(find("verdict"), "checking ...");
  find("run").disabled = Boolean(document.body.dataset.readOnly);
}

// Checks the text as it is now, and returns its mistakes; null if it was changed meanwhile, or could not be checked.
async function check() {
  giveUpCheck();
  const mine = (draft.check = new AbortController());
  try {
    const found = await post(`${ROOT}-/new/check`, { text: text.value, file: find("file").value || "sweep.yaml" }, mine.signal);
    if (mine !== draft.check) return null;
    showMistakes(found);
    return found.mistakes;
  } catch (error) {
    if (mine !== draft.check) return null;
    forgetMistakes();
    tell(find("verdict"), `not checked: ${error.message}`);
    return null;
  }
}

function forgetMistakes() {
  draft.wrong = new Set();
  showNumbers();
  text.setAttribute("aria-invalid", "false");
  find("mistakes").replaceChildren();
}

function showMistakes(found) {
  draft.wrong = new Set(found.mistakes.map((one) => one.line));
  showNumbers();
  const count = found.mistakes.length;
  text.setAttribute("aria-invalid", String(count > 0));
  find("verdict").classList.toggle("wrong", count > 0);
  tell(find("verdict"), count ? counted(count, "mistake") : `${found.name}: no mistake; ${found.work}`);
  find("mistakes").classList.remove("older");
  find("mistakes").replaceChildren(...found.mistakes.map(mistakeItem));
  find("run").disabled = count > 0 || Boolean(document.body.dataset.readOnly);
}

function mistakeItem(one) {
  const { mistake } = one;
  const words = [one.path && `${one.path}: `, mistake.is, mistake.expected && `, expected ${mistake.expected}`, mistake.hint && `; ${mistake.hint}`].filter(Boolean).join("");
  if (!one.line) return make("li", {}, words);
  const go = make("button", { type: "button", class: "plain-button" }, `line ${one.line}`);
  go.addEventListener("click", () => goTo(one.line, one.column));
  return make("li", {}, go, " ", words);
}

function goTo(line, column) {
  const before = text.value.split("\n").slice(0, line - 1).join("\n");
  const at = before.length + (line > 1 ? 1 : 0) + column - 1;
  text.focus();
  text.setSelectionRange(at, at);
}

// A new plan takes the place of the older ones.
async function planDraft(more) {
  for (const panel of find("jobs").querySelectorAll("[data-title=Plan]")) dismissJob(panel);
  await attempt("-/new/plan", more);
}

async function runDraft() {
  const mistakes = await check(); // what is shown may belong to an older text
  if (mistakes?.length) {
    hear(find("verdict").textContent);
    return;
  }
  try {
    if (!(await saveDraft())) return;
  } catch (error) {
    showWrong(error.message);
    return;
  }
  await attempt("-/new/run", { replace: "yes" });
}

async function attempt(address, more) {
  find("hint").hidden = true;
  try {
    forgetWrong();
    followJob(await post(`${ROOT}${address}`, { text: text.value, file: find("file").value, ...more }));
  } catch (error) {
    showWrong(error.message);
  }
}

// ---- files ----------------------------------------------------------------------------------------------------------

// Saves the text; where the file has another one, a person is asked first. Returns whether it was saved.
async function saveDraft() {
  const content = { file: find("file").value, text: text.value };
  let found = await post(`${ROOT}-/new/save`, content);
  if (!found.saved) {
    const asks = `${content.file} is there with another text, which will be lost.`;
    if (!(await ask(`Overwrite ${content.file}?`, asks, "Overwrite"))) return false;
    found = await post(`${ROOT}-/new/save`, { ...content, replace: "yes" });
  }
  forgetWrong();
  draft.kept = content.text;
  tell(find("saved"), `${content.file} is saved`);
  listFiles();
  return true;
}

// Asks a question in the dialog; returns whether the answer is yes.
function ask(heading, words, yes) {
  const dialog = find("asking");
  const back = document.activeElement;
  return new Promise((answer) => {
    const confirm = make("button", { type: "submit", class: "strong" }, yes);
    const cancel = make("button", { type: "button", value: "cancel", autofocus: true }, "Cancel");
    const form = make("form", { class: "asking", method: "dialog" }, make("h2", { id: "asking-title" }, heading), make("p", {}, words), make("div", { class: "tools" }, confirm, cancel));
    let said = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      said = true;
      dialog.close();
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.onclose = () => {
      back?.focus();
      answer(said);
    };
    dialog.replaceChildren(form);
    dialog.showModal();
  });
}

async function listFiles() {
  try {
    const files = await getJson(`${ROOT}-/new/files.json`);
    const options = files.map((file) => make("option", { value: file }, file));
    find("open").replaceChildren(find("open").options[0], ...options);
    find("opening").hidden = !files.length;
  } catch (error) {
    hear(error.message);
  }
}

async function openFile() {
  const file = find("open").value;
  if (!file) return;
  const isLost = text.value !== draft.kept;
  if (isLost && !(await ask(`Open ${file}?`, "What was typed here is not saved, and will be lost.", `Open ${file}`))) {
    find("open").value = "";
    return;
  }
  location.assign(`${ROOT}-/new?file=${encodeURIComponent(file)}`);
}

async function showRunLine() {
  if (document.body.dataset.readOnly) return;
  try {
    tell(find("command"), (await post(`${ROOT}-/new/run`, { file: find("file").value, preview: "yes" })).command);
  } catch (error) {
    tell(find("command"), error.message);
  }
}
