"use strict";
// The ranking: as many rows as there are configurations, of which only those in view are elements.

const ROW = 30; // pixels, as in the style sheet
const PRINTED = 60;

// `marks`: on the live page, {star, note}: functions of the row that return the elements of a cell, and {text} of it.
const table = { rows: [], columns: [], sorted: { name: "rank", falling: false }, focus: 0, visible: true, printing: false, marks: null };

const MOST_PARAMS = 8; // parameters that have a column at first, where there is room
const LEAST_PARAMS = 2;

// Parameters as columns: first those that only some of the compared sweeps have, by which their rows differ.
function listColumnParams() {
  if (!SEVERAL) return PARAMS;
  const isIn = (field, sweep) => TRIALS.sweep.some((one, trial) => one === sweep && shown(field, trial) !== "not set");
  const isMissing = (field) => DATA.sweeps.some((_, sweep) => !isIn(field, sweep));
  return [...PARAMS.filter(isMissing), ...PARAMS.filter((field) => !isMissing(field))];
}

// The columns that matter most, in their order, with so many parameters. All others follow where they are asked for.
function listColumns(most) {
  const names = DATA.table.columns;
  const params = listColumnParams().map((field) => names.find((name) => name === `param.${field.name}`) ?? field.name).filter((name) => names.includes(name));
  const scores = OBJECTIVES.map((field) => names.find((name) => name === `metric.${field.name}`) ?? field.name);
  const first = ["rank", "sweep", "trial", "star", "status", ...scores, "verdict", ...params.slice(0, most), "note"];
  const present = first.filter((name) => names.includes(name) || (table.marks && name in table.marks));
  if (!document.getElementById("all-columns").checked) return present;
  return [...present, ...names.filter((name) => !present.includes(name))];
}

// Columns and rows of the present document; sorted as before. There are as many columns as fit.
function fillTable() {
  const all = document.getElementById("all-columns").checked;
  for (let most = MOST_PARAMS; most >= LEAST_PARAMS; most--) {
    fillColumns(listColumns(most));
    if (all || table.box.scrollWidth <= table.box.clientWidth) return;
  }
}

function fillColumns(shown) {
  const names = DATA.table.columns;
  const folded = names.filter((name) => !shown.includes(name));
  document.getElementById("fold").hidden = !folded.length && !document.getElementById("all-columns").checked;
  table.columns = shown.map((name) => {
    const at = names.indexOf(name);
    const numeric = at >= 0 && !(table.marks && name in table.marks) && DATA.table.rows.every((row) => row[at] === "" || !Number.isNaN(parseFloat(row[at])));
    return { name, at, numeric };
  });
  if (!shown.includes(table.sorted.name)) table.sorted = { name: "rank", falling: false };
  const head = table.columns.map(({ name, numeric }) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    cell.scope = "col";
    cell.className = numeric ? "number" : "";
    button.type = "button";
    button.append(isolate(name));
    button.addEventListener("click", () => sortBy(name));
    cell.append(button);
    return cell;
  });
  table.box.querySelector("thead tr").replaceChildren(...head);
  table.of = new Array(N);
  DATA.table.trials.forEach((trials, row) => trials.forEach((trial) => (table.of[trial] = row)));
  table.box.querySelector("table").setAttribute("aria-rowcount", String(DATA.table.rows.length + 1));
  arrange();
}

function openTable() {
  table.box = document.getElementById("ranking");
  table.body = table.box.querySelector("tbody");
  table.box.addEventListener("scroll", () => requestAnimationFrame(showRows));
  table.body.addEventListener("keydown", moveInTable);
  table.body.addEventListener("click", (event) => rowOf(event) >= 0 && selectRow(rowOf(event), event));
  table.body.addEventListener("mouseover", (event) => rowOf(event) >= 0 && setCurrent(DATA.table.trials[rowOf(event)][0]));
  table.body.addEventListener("mouseleave", () => setCurrent(-1));
  document.getElementById("only").addEventListener("change", arrange);
  document.getElementById("all-columns").addEventListener("change", fillTable);
  new IntersectionObserver((entries) => {
    table.visible = entries[entries.length - 1].isIntersecting;
    if (table.visible) showRows();
  }).observe(table.box);
  selection.listeners.push((settled) => {
    if (settled && document.getElementById("only").checked) arrange();
    else if (settled || table.visible) showRows();
  });
  fillTable();
}

function isolate(text) {
  const element = document.createElement("bdi");
  element.textContent = text;
  return element;
}

function rowOf(event) {
  const row = event.target.closest("tr[data-row]");
  return row ? Number(row.dataset.row) : -1;
}

function sortBy(name) {
  const { sorted } = table;
  sorted.falling = sorted.name === name ? !sorted.falling : false;
  sorted.name = name;
  arrange();
}

// The text of a cell, by which it is sorted.
function cellText(row, { name, at }) {
  return table.marks?.[name] ? table.marks[name](row).text : DATA.table.rows[row][at];
}

function arrange() {
  const { name, falling } = table.sorted;
  const column = table.columns.find((one) => one.name === name);
  const only = document.getElementById("only").checked && selection.mask;
  table.rows = DATA.table.rows.map((_, row) => row).filter((row) => !only || chosenIn(row));
  if (name !== "rank" || falling) {
    const sign = falling ? -1 : 1;
    const texts = new Map(table.rows.map((row) => [row, cellText(row, column)]));
    const key = (row) => (column.numeric ? parseFloat(texts.get(row)) : texts.get(row));
    const isEmpty = (row) => texts.get(row) === ""; // comes last, whichever way is sorted
    table.rows.sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      return isEmpty(one) - isEmpty(other) || (a < b ? -sign : a > b ? sign : 0) || one - other;
    });
  }
  table.box.querySelectorAll("th").forEach((cell, at) => {
    const isSorted = table.columns[at].name === name;
    cell.setAttribute("aria-sort", isSorted ? (falling ? "descending" : "ascending") : "none");
  });
  table.focus = Math.min(table.focus, Math.max(table.rows.length - 1, 0));
  showRows();
}

function chosenIn(row) {
  return Boolean(selection.mask) && DATA.table.trials[row].some((trial) => selection.mask[trial]);
}

function showRows() {
  const high = table.box.clientHeight || 400;
  const first = table.printing ? 0 : Math.max(0, Math.floor(table.box.scrollTop / ROW) - 8);
  const last = Math.min(table.rows.length, table.printing ? PRINTED : first + Math.ceil(high / ROW) + 16);
  const held = table.body.contains(document.activeElement);
  const rows = [filler(first)];
  for (let at = first; at < last; at++) rows.push(rowElement(at));
  rows.push(filler(table.printing ? 0 : table.rows.length - last));
  table.body.replaceChildren(...rows);
  if (held) table.body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
}

function filler(rows) {
  const element = document.createElement("tr");
  element.className = "filler";
  element.setAttribute("aria-hidden", "true");
  element.style.height = `${rows * ROW}px`;
  return element;
}

function rowElement(at) {
  const row = table.rows[at];
  const element = document.createElement("tr");
  const chosen = chosenIn(row);
  element.dataset.row = String(row);
  element.tabIndex = at === table.focus ? 0 : -1;
  element.setAttribute("aria-rowindex", String(at + 2));
  element.setAttribute("aria-selected", String(chosen));
  element.classList.toggle("chosen", chosen);
  element.classList.toggle("odd", at % 2 === 1);
  element.classList.toggle("current", selection.current >= 0 && table.of[selection.current] === row);
  for (const column of table.columns) element.append(cellElement(row, column));
  if (at !== table.focus) for (const button of element.querySelectorAll("button")) button.tabIndex = -1;
  return element;
}

function cellElement(row, column) {
  const cell = document.createElement("td");
  if (table.marks?.[column.name]) {
    cell.className = "mark";
    cell.append(...table.marks[column.name](row).elements);
    return cell;
  }
  const text = cellText(row, column);
  if (column.numeric) cell.className = "number";
  else if (text.length > CUT) cell.title = text;
  cell.append(isolate(text));
  return cell;
}

const CUT = 16; // characters from which a cell may be cut off

// Below the table: the whole text of the cells of a row that may be cut off, also for keyboards and fingers.
function showWholeTexts(row) {
  const place = document.getElementById("whole");
  const cut = table.columns.filter((column) => !column.numeric && cellText(row, column).length > CUT);
  place.hidden = !cut.length;
  const parts = cut.map((column) => {
    const line = document.createElement("div");
    const name = document.createElement("span");
    name.className = "note";
    name.append(isolate(column.name));
    line.append(name, " ", isolate(cellText(row, column)));
    return line;
  });
  place.replaceChildren(...parts);
}

function selectRow(row, event) {
  table.focus = table.rows.indexOf(row);
  showWholeTexts(row);
  const added = event.ctrlKey || event.metaKey || event.shiftKey;
  selectTrials(picked, DATA.table.trials[row], added);
}

function moveInTable(event) {
  const page = Math.max(1, Math.floor(table.box.clientHeight / ROW) - 2);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    selectRow(table.rows[table.focus], event);
  } else if (event.key in steps) {
    event.preventDefault();
    table.focus = Math.max(0, Math.min(table.rows.length - 1, table.focus + steps[event.key]));
    const top = table.focus * ROW;
    const room = table.box.clientHeight - 2 * ROW;
    if (top < table.box.scrollTop) table.box.scrollTop = top;
    else if (top > table.box.scrollTop + room) table.box.scrollTop = top - room;
    showRows();
    showWholeTexts(table.rows[table.focus]);
    table.body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
    setCurrent(DATA.table.trials[table.rows[table.focus]][0]);
  }
}
