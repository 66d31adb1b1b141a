"use strict";
// The ranking: as many rows as there are configurations, of which only those in view are elements.

const ROW = 30; // pixels, as in the style sheet
const PRINTED = 60;

const table = { rows: [], sorted: { column: 0, falling: false }, focus: 0, visible: true, printing: false };

// Columns and rows of the present document; sorted as before.
function fillTable() {
  const { columns } = DATA.table;
  const sorted = table.columns?.[table.sorted.column];
  table.columns = columns;
  if (sorted !== undefined) table.sorted.column = Math.max(0, columns.indexOf(sorted));
  table.numeric = columns.map((_, at) => DATA.table.rows.every((row) => row[at] === "" || !Number.isNaN(parseFloat(row[at]))));
  const head = columns.map((name, at) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    cell.scope = "col";
    cell.className = table.numeric[at] ? "number" : "";
    button.type = "button";
    button.append(isolate(name));
    button.addEventListener("click", () => sortBy(at));
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

function sortBy(column) {
  const { sorted } = table;
  sorted.falling = sorted.column === column ? !sorted.falling : false;
  sorted.column = column;
  arrange();
}

function arrange() {
  const { column, falling } = table.sorted;
  const cells = DATA.table.rows;
  const key = table.numeric[column]
    ? (row) => (cells[row][column] === "" ? Infinity : parseFloat(cells[row][column]))
    : (row) => cells[row][column];
  const only = document.getElementById("only").checked && selection.mask;
  table.rows = cells.map((_, row) => row).filter((row) => !only || chosenIn(row));
  if (column !== 0 || falling) {
    const sign = falling ? -1 : 1;
    table.rows.sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      return (a < b ? -sign : a > b ? sign : 0) || one - other;
    });
  }
  table.box.querySelectorAll("th").forEach((cell, at) => {
    cell.setAttribute("aria-sort", at === column ? (falling ? "descending" : "ascending") : "none");
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
  DATA.table.rows[row].forEach((text, column) => {
    const cell = document.createElement("td");
    if (table.numeric[column]) cell.className = "number";
    else if (text.length > 24) cell.title = text;
    cell.append(isolate(text));
    element.append(cell);
  });
  return element;
}

function selectRow(row, event) {
  table.focus = table.rows.indexOf(row);
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
    table.body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
    setCurrent(DATA.table.trials[table.rows[table.focus]][0]);
  }
}
