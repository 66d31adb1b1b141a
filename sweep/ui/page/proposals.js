"use strict";
// Proposals of the server for what may stand at the cursor of an editor, as a list box that the editor controls.

const TYPING = 120; // milliseconds after a key until proposals are asked for
const READING = 1500; // until they are asked for again while the server still reads a source

const offered = { text: null, list: [], chosen: -1, before: 0, after: 0, number: 0, waiting: 0 };

function offerProposals(text) {
  offered.text = text;
  text.addEventListener("input", (event) => {
    closeProposals();
    if (!event.inputType || event.inputType.startsWith("insertLineBreak") || event.inputType.startsWith("history")) return;
    offered.waiting = setTimeout(() => askForProposals("typing"), TYPING);
  });
  text.addEventListener("keydown", chooseByKey);
  for (const kind of ["blur", "pointerdown"]) text.addEventListener(kind, closeProposals);
  text.addEventListener("scroll", placeList);
  find("complete").addEventListener("pointerdown", (event) => event.preventDefault()); // the editor keeps the focus
  find("complete").addEventListener("click", () => {
    text.focus();
    askForProposals("wanted");
  });
}

// `why`: "wanted" by a person, "typing" a word, or the "value" of a key that was just chosen.
async function askForProposals(why) {
  const { text } = offered;
  const number = ++offered.number;
  const at = text.selectionEnd;
  if (at !== text.selectionStart) return;
  try {
    const found = await post(`${ROOT}-/new/complete`, { before: text.value.slice(0, at), after: text.value.slice(at), file: find("file").value, why });
    if (number !== offered.number || text.selectionEnd !== at) return;
    showProposals(found, why);
    if (found.unread) offered.waiting = setTimeout(() => number === offered.number && askForProposals(why), READING);
  } catch (error) {
    if (why === "wanted") hear(error.message);
  }
}

function showProposals(found, why) {
  const isWanted = why === "wanted";
  const isShown = found.proposals.length > 0 && (why !== "typing" || found.before > 0);
  if (!isShown) {
    hideList();
    if (isWanted) showNothing(found.unread ? `Reading ${found.unread} ...` : "No suggestions here.");
    return;
  }
  Object.assign(offered, { list: found.proposals, before: found.before, after: found.after });
  // After the name of a key, Enter still makes a new line until an arrow has chosen.
  offered.chosen = why === "value" ? -1 : 0;
  const list = find("proposals");
  list.replaceChildren(...offered.list.map(proposalItem));
  list.hidden = false;
  offered.text.setAttribute("aria-controls", "proposals");
  placeList();
  markChosen();
  const first = offered.list[0].label;
  hear(`${offered.list.length} ${offered.list.length > 1 ? "suggestions" : "suggestion"}, the first is ${first}`);
}

// That there is nothing to propose is said where the list would be, until something else is done.
function showNothing(text) {
  const box = find("no-proposals");
  tell(box, text);
  box.hidden = false;
  placeBox(box, 0);
  hear(text);
}

function proposalItem(one, at) {
  const head = make("span", { class: "proposal-head" }, make("code", {}, one.label), one.default ? make("span", { class: "note" }, one.default === one.label ? "default" : `default ${one.default}`) : null);
  const item = make("li", { id: `proposal-${at}`, role: "option", "aria-selected": "false" }, head, one.about ? make("span", { class: "about" }, one.about) : null);
  item.addEventListener("pointerdown", (event) => event.preventDefault());
  item.addEventListener("click", () => takeProposal(at));
  return item;
}

function markChosen() {
  const items = [...find("proposals").children];
  items.forEach((item, at) => item.setAttribute("aria-selected", String(at === offered.chosen)));
  const chosen = items[offered.chosen];
  if (!chosen) {
    offered.text.removeAttribute("aria-activedescendant");
    return;
  }
  offered.text.setAttribute("aria-activedescendant", chosen.id);
  chosen.scrollIntoView({ block: "nearest" });
}

function placeList() {
  if (!find("proposals").hidden) placeBox(find("proposals"), offered.before);
  if (!find("no-proposals").hidden) placeBox(find("no-proposals"), 0);
}

// Below the word that begins so many characters before the cursor, and within the editor's width.
function placeBox(box, characters) {
  const { text } = offered;
  const style = getComputedStyle(text);
  const before = text.value.slice(0, text.selectionEnd - characters).split("\n");
  const height = parseFloat(style.lineHeight);
  const left = text.offsetLeft + parseFloat(style.paddingLeft) + before.at(-1).length * measureLetter(style) - text.scrollLeft;
  const top = text.offsetTop + parseFloat(style.paddingTop) + before.length * height - text.scrollTop;
  const room = box.offsetParent.clientWidth - box.offsetWidth;
  box.style.left = `${Math.max(0, Math.min(left, room))}px`;
  box.style.top = `${Math.max(height, Math.min(top, text.offsetTop + text.offsetHeight))}px`;
}

function measureLetter(style) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  return pen.measureText("0").width;
}

function chooseByKey(event) {
  const isAsking = (event.key === " " && event.ctrlKey) || (event.key === "ArrowDown" && event.altKey);
  if (isAsking) {
    event.preventDefault();
    clearTimeout(offered.waiting);
    askForProposals("wanted");
    return;
  }
  if (!find("no-proposals").hidden) {
    closeProposals();
    if (event.key === "Escape") event.preventDefault();
  }
  if (find("proposals").hidden) return;
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 6, PageUp: -6 };
  if (event.key in steps) {
    event.preventDefault();
    moveChoice(steps[event.key]);
  } else if (event.key === "Escape") {
    event.preventDefault();
    closeProposals();
    hear("suggestions closed");
  } else if ((event.key === "Enter" || event.key === "Tab") && !event.shiftKey && !event.ctrlKey && !event.metaKey) {
    if (isTyped(offered.chosen)) closeProposals();
    else {
      event.preventDefault();
      takeProposal(offered.chosen);
    }
  } else if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) closeProposals();
}

function moveChoice(step) {
  const last = offered.list.length - 1;
  const isAtEnd = offered.chosen === (step > 0 ? last : 0) || offered.chosen < 0;
  const around = step > 0 ? 0 : last;
  offered.chosen = isAtEnd ? around : Math.max(0, Math.min(last, offered.chosen + step));
  markChosen();
}

// Nothing is chosen, or what is chosen stands there already: then Enter is a new line, as it is without the list.
function isTyped(at) {
  const { text, list, before } = offered;
  return at < 0 || list[at].insert === text.value.slice(text.selectionEnd - before, text.selectionEnd);
}

function takeProposal(at) {
  const { text, before, after } = offered;
  const one = offered.list[at];
  const cursor = text.selectionEnd;
  closeProposals();
  text.focus();
  text.setRangeText(one.insert, cursor - before, cursor + after, "end");
  text.dispatchEvent(new Event("input"));
  hear(`${one.label} inserted`);
  if (one.insert.endsWith(": ")) askForProposals("value");
}

function hideList() {
  offered.list = [];
  find("proposals").hidden = true;
  find("no-proposals").hidden = true;
  offered.text.removeAttribute("aria-activedescendant");
  offered.text.removeAttribute("aria-controls");
}

// What was asked for is not shown any more either.
function closeProposals() {
  offered.number += 1;
  clearTimeout(offered.waiting);
  hideList();
}
