"use strict";
// All sweeps of the results folder.

const shelf = { rows: [], known: false, items: new Map(), selected: new Set() };

openPlainTheme();
openStream(`${ROOT}-/events`, {
  shelf: (data) => {
    shelf.rows = JSON.parse(data);
    shelf.known = true;
    showShelf();
    openShelfActs();
  },
  problem: (data) => showLink(JSON.parse(data)),
});
find("filter").addEventListener("input", showShelf);
find("state").addEventListener("change", showShelf);
find("compare").addEventListener("click", () => {
  const query = new URLSearchParams([...shelf.selected].map((name) => ["sweep", name]));
  location.assign(`${ROOT}-/compare?${query}`);
});

// What can be done is the same for all sweeps; of it, the list offers notes.
async function openShelfActs() {
  const known = shelf.rows.find((row) => row.state !== "damaged");
  if (shelf.hasActs || !known) return;
  shelf.hasActs = true;
  try {
    acts.offered = await getJson(`${ROOT}${encodeURIComponent(known.name)}/-/acts.json`);
  } catch (error) {
    hear(error.message);
  }
  shelf.items.clear();
  showShelf();
}

// A note that was written is shown at once, before the list is read again.
acts.ended = (act, done, given) => {
  const row = shelf.rows.find((one) => one.name === done.sweep);
  if (row) row.note = markAfter({ note: row.note }, act, given).note;
  showShelf();
};

function isShown(row) {
  const word = stateWord(row.state);
  if (find("state").value && find("state").value !== word) return false;
  const text = [row.name, row.state, word, row.question, row.metric, row.note].join(" ").toLowerCase();
  return find("filter").value.toLowerCase().split(/\s+/).every((part) => text.includes(part));
}

function showShelf() {
  if (!shelf.known) return; // the page says that it is reading
  fillStates();
  const names = new Set(shelf.rows.map((row) => row.name));
  for (const name of [...shelf.selected]) if (!names.has(name)) shelf.selected.delete(name);
  const shown = shelf.rows.filter(isShown);
  const list = find("sweeps");
  const items = shown.map((row) => sweepItem(row));
  const same = items.length === list.children.length && items.every((item, at) => list.children[at] === item);
  if (!same) {
    const held = document.activeElement;
    list.replaceChildren(...items);
    if (list.contains(held)) held.focus({ preventScroll: true });
  }
  list.removeAttribute("aria-busy");
  find("empty").hidden = shown.length > 0;
  tell(find("empty"), shelf.rows.length ? "No sweep matches the filter." : "No sweeps yet. Start one with: python -m sweep run FILE, or write a file here: New sweep.");
  tell(find("count"), shelf.rows.length > shown.length ? `${shown.length} of ${shelf.rows.length} sweeps` : `${shelf.rows.length} sweeps`);
  showSelected();
}

function fillStates() {
  const words = [...new Set(shelf.rows.map((row) => stateWord(row.state)))].sort();
  const chooser = find("state");
  const before = chooser.value;
  if (words.join() === [...chooser.options].slice(1).map((item) => item.value).join()) return;
  chooser.replaceChildren(make("option", { value: "" }, "all"), ...words.map((word) => make("option", { value: word }, word)));
  chooser.value = words.includes(before) ? before : "";
}

// The element of a sweep, made anew only if something of it has changed.
function sweepItem(row) {
  const content = JSON.stringify(row);
  const known = shelf.items.get(row.name);
  if (known?.content === content) return known.element;
  const element = known?.element ?? make("li", { class: "sweep" });
  const checked = shelf.selected.has(row.name);
  const held = element.contains(document.activeElement) ? document.activeElement.dataset.hold : null;
  element.replaceChildren(...rowParts(row, checked));
  if (held) element.querySelector(`[data-hold="${held}"]`)?.focus({ preventScroll: true });
  if (known) markFresh(element);
  shelf.items.set(row.name, { content, element });
  return element;
}

function markFresh(element) {
  element.classList.remove("fresh");
  requestAnimationFrame(() => element.classList.add("fresh"));
}

function rowParts(row, checked) {
  const check = make("input", { type: "checkbox", "data-hold": "check", "aria-label": `Select ${row.name} to compare` });
  check.checked = checked;
  check.disabled = row.state === "damaged";
  check.addEventListener("change", () => {
    if (check.checked) shelf.selected.add(row.name);
    else shelf.selected.delete(row.name);
    showSelected();
  });
  const word = stateWord(row.state);
  const told = word === "ended" ? row.state : word;
  const ended = Object.entries(row.trials).reduce((sum, [status, count]) => sum + (status === "running" || status === "interrupted" ? 0 : count), 0);
  const progress = row.total === null || row.total === undefined ? counted(ended, "trial") : `${inThousands(ended)}/${counted(row.total, "trial")}`;
  const best = row.best === null || row.best === undefined ? "" : `${row.metric} ${inScore(row.best)}`;
  const facts = [];
  if (row.duration_s) facts.push(`took ${inTime(row.duration_s)}`);
  if (row.left_s !== null && row.left_s !== undefined) facts.push(`about ${inTime(row.left_s)} left`);
  if (row.cost !== null && row.cost !== undefined) facts.push(`cost ${inMoney(row.cost)}`);
  if (row.started) facts.push(new Date(1000 * row.started).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }));
  const lines = [
    make("span", { class: "pick" }, check),
    make("span", { class: "name" }, make("a", { href: `${ROOT}${encodeURIComponent(row.name)}`, "data-hold": "name" }, row.name), statusMark(word, told)),
    make("span", { class: "done" }, progress, row.share === null || row.share === undefined ? null : shareBar(row.share)),
    make("span", { class: "top-score" }, make("strong", {}, best), row.verdict ? make("span", { class: "note" }, row.verdict) : null),
    make("span", { class: "rest note" }, facts.join(" · ")),
  ];
  const words = [row.question, row.reason, row.other_data, row.other_code].filter(Boolean);
  if (word === "killed") words.push(`its process was killed; go on with: ${row.to_resume}`);
  if (words.length) lines.push(make("span", { class: "words note" }, words.join(" · ")));
  const mark = { note: row.note ?? "" };
  const noted = word === "damaged" ? [] : noteParts(mark.note, { sweep: row.name }, mark).filter(Boolean);
  if (mark.note) lines.push(make("span", { class: "words noted" }, make("span", { class: "note" }, "note"), noted));
  if (!document.body.dataset.readOnly && word !== "damaged") {
    const copy = make("a", { href: `${ROOT}-/new?from=${encodeURIComponent(row.name)}`, "aria-label": `duplicate ${row.name}` }, "duplicate");
    lines.push(make("span", { class: "copy note" }, mark.note ? null : noted, copy));
  }
  return lines;
}

function shareBar(share) {
  const bar = make("progress", { max: "1", "aria-label": "share of its trials" });
  bar.value = share;
  return bar;
}

function showSelected() {
  const count = shelf.selected.size;
  find("compare").disabled = count < 2;
  tell(find("compare"), count > 1 ? `Compare ${count} sweeps` : "Compare the selected");
}
