"use strict";
// A sweep file that is written here: checked while it is typed, priced, and run.

const text = find("text");
const draft = { lines: 0, wrong: new Set(), checking: 0, number: 0, kept: text.value };

openPlainTheme();
text.addEventListener("input", () => {
  tell(find("saved"), "");
  showNumbers();
  checkSoon();
});
text.addEventListener("scroll", () => (find("numbers").scrollTop = text.scrollTop));
offerProposals(text);
text.addEventListener("keydown", indent);
find("file").addEventListener("input", () => {
  checkSoon();
  showRunLine();
});
find("plan").addEventListener("click", planDraft);
find("run").addEventListener("click", runDraft);
if (document.body.dataset.readOnly) {
  for (const id of ["plan", "run", "save"]) find(id).disabled = true;
}
find("save").addEventListener("click", () => saveDraft().catch((error) => showDraftError(error)));
find("open").addEventListener("change", openFile);
listFiles();
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
  clearTimeout(draft.checking);
  draft.checking = setTimeout(check, 350);
}

async function check() {
  const number = ++draft.number;
  try {
    const found = await post(`${ROOT}-/new/check`, { text: text.value, file: find("file").value || "sweep.yaml" });
    if (number === draft.number) showMistakes(found);
  } catch (error) {
    tell(find("verdict"), error.message);
  }
}

function showMistakes(found) {
  draft.wrong = new Set(found.mistakes.map((one) => one.line));
  showNumbers();
  const count = found.mistakes.length;
  text.setAttribute("aria-invalid", String(count > 0));
  find("verdict").classList.toggle("wrong", count > 0);
  tell(find("verdict"), count ? `${count} mistake${count > 1 ? "s" : ""}` : `${found.name}: no mistake; ${found.work}`);
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

async function planDraft() {
  find("hint").hidden = true;
  await attempt("Plan", "-/new/plan", {});
}

async function runDraft() {
  find("hint").hidden = true;
  try {
    if (!(await saveDraft())) return;
  } catch (error) {
    showDraftError(error);
    return;
  }
  await attempt("Run", "-/new/run", { replace: "yes" }, (facts) => {
    const name = /^started\s+(.+) in the background/m.exec(facts.output)?.[1];
    if (facts.exit_code === 0 && name) find("jobs").prepend(make("p", {}, make("a", { class: "button", href: `${ROOT}${encodeURIComponent(name)}` }, `Watch ${name}`)));
  });
}

async function attempt(title, address, more, ended) {
  try {
    followJob(await post(`${ROOT}${address}`, { text: text.value, file: find("file").value, ...more }), title, ended);
  } catch (error) {
    showDraftError(error);
  }
}

function showDraftError(error) {
  hear(error.message);
  find("jobs").hidden = false;
  find("jobs").prepend(make("p", { class: "wrong", role: "alert" }, error.message));
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
