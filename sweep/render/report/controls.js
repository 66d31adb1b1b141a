"use strict";
// What the reader works with beside the charts: the bar, the form, the keyboard, and what is said of a trial.

const modes = { brush: matchMedia("(pointer: coarse)").matches ? "none" : "rect" };

function option(value, text) {
  const element = document.createElement("option");
  element.value = value;
  element.textContent = text;
  return element;
}

// Offers these names, each with its place in the list as value; what was chosen stays chosen.
function fillChooser(chooser, names, first = 0) {
  const before = chooser.selectedOptions[0]?.textContent;
  chooser.replaceChildren(...names.map((name, at) => option(String(at), name)));
  chooser.selectedIndex = names.includes(before) ? names.indexOf(before) : Math.min(first, names.length - 1);
}

function showTip(trial, x, y) {
  const tip = document.getElementById("tip");
  const head = document.createElement("strong");
  head.append(isolate(title(trial)));
  const list = document.createElement("dl");
  for (const [name, value] of lines(trial)) {
    const [term, told] = [document.createElement("dt"), document.createElement("dd")];
    term.append(isolate(name));
    told.append(isolate(value));
    list.append(term, told);
  }
  tip.replaceChildren(head, list);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? Math.max(4, x - 16 - width) : x + 16;
  tip.style.left = `${left}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 16, innerHeight - height - 8))}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

function say(text) {
  document.getElementById("said").textContent = text;
}

function showSelection(settled) {
  const told = selection.mask ? `${inThousands(selection.count)} of ${inThousands(N)} trials selected` : `${inThousands(N)} trials, none selected`;
  document.getElementById("selected").textContent = told;
  document.getElementById("clear").disabled = !selection.mask;
  document.getElementById("bar").classList.toggle("active", Boolean(selection.mask));
  if (settled && selection.mask) say(told);
}

function showLegend() {
  const legend = document.getElementById("legend");
  legend.classList.toggle("ramp", Boolean(theme.legend.ramp));
  legend.replaceChildren(
    ...theme.legend.map(([name, colour]) => {
      const item = document.createElement("li");
      const swatch = document.createElement("i");
      swatch.style.background = colour;
      item.append(swatch, ...(name ? [isolate(name)] : []));
      return item;
    }),
  );
}

function redraw() {
  readTheme();
  showLegend();
  for (const plot of plots) plot.draw();
}

function setTheme(kind) {
  if (kind) document.documentElement.dataset.theme = kind;
  else delete document.documentElement.dataset.theme;
  redraw();
}

// What trials can be coloured by.
function fillColours() {
  const colour = document.getElementById("colour");
  const before = colour.selectedOptions[0]?.textContent;
  const first = SEVERAL ? "sweep" : FIELDS[0].name;
  const choices = FIELDS.map((field, at) => option(String(at), field.name));
  if (SEVERAL) choices.push(option("sweep", "sweep"));
  choices.push(option("status", "status"));
  colour.replaceChildren(...choices);
  const names = choices.map((choice) => choice.textContent);
  colour.selectedIndex = names.includes(before) ? names.indexOf(before) : names.lastIndexOf(first);
  if (!SEVERAL && before === undefined) colour.selectedIndex = 0;
}

function openControls() {
  fillColours();
  document.getElementById("colour").addEventListener("change", redraw);
  for (const button of document.querySelectorAll("button[data-brush]")) {
    button.addEventListener("click", () => setBrush(button.dataset.brush));
  }
  setBrush(modes.brush);
  document.getElementById("clear").addEventListener("click", clearSelection);
  document.getElementById("theme").addEventListener("click", () => setTheme(theme.dark ? "light" : "dark"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      clearSelection();
      setCurrent(-1);
      hideTip();
    }
  });
  selection.listeners.push(showSelection);
  openForm();
}

function setBrush(kind) {
  modes.brush = kind;
  for (const button of document.querySelectorAll("button[data-brush]")) {
    button.setAttribute("aria-pressed", String(button.dataset.brush === kind));
  }
  document.body.classList.toggle("brushing", kind !== "none");
  for (const plot of plots) if (plot.chart && plot.setMode) plot.setMode();
}

// What trials can be selected by.
function listFormFields() {
  const known = [
    ...FIELDS,
    { name: "rank", numeric: true, values: TRIALS.rank },
    { name: "epochs", numeric: true, values: TRIALS.epochs },
    { name: "status", numeric: false, labels: STATUSES, values: TRIALS.status },
  ];
  if (SEVERAL) known.push({ name: "sweep", numeric: false, labels: DATA.sweeps.map((one) => one.name), values: TRIALS.sweep });
  return known;
}

function fillForm() {
  const form = document.getElementById("values");
  fillChooser(form.elements.field, listFormFields().map((one) => one.name));
  adaptForm();
}

function adaptForm() {
  const form = document.getElementById("values");
  const one = listFormFields()[Number(form.elements.field.value)];
  form.querySelector(".range").hidden = !one.numeric;
  form.querySelector(".choice").hidden = one.numeric;
  if (one.numeric) return;
  const chosen = new Set([...form.elements.choices.selectedOptions].map((item) => item.textContent));
  form.elements.choices.replaceChildren(...one.labels.map((label, at) => option(String(at), label)));
  for (const item of form.elements.choices.options) item.selected = chosen.has(item.textContent);
}

// Selecting by values: all that boxes can, without a pointer.
function openForm() {
  const form = document.getElementById("values");
  fillForm();
  form.elements.field.addEventListener("change", adaptForm);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const one = listFormFields()[Number(form.elements.field.value)];
    const chosen = new Set([...form.elements.choices.selectedOptions].map((item) => Number(item.value)));
    const from = form.elements.from.value === "" ? -Infinity : Number(form.elements.from.value);
    const to = form.elements.to.value === "" ? Infinity : Number(form.elements.to.value);
    const holds = one.numeric ? (value) => value !== null && value >= from && value <= to : (value) => chosen.has(value);
    select(form, Uint8Array.from(one.values, (value) => (holds(value) ? 1 : 0)));
  });
}

// In a chart: arrows go from trial to trial by rank, Enter selects.
function openKeyboard(element) {
  element.dataset.keys = "yes";
  const find = () => plots.find((one) => one.box === element);
  element.addEventListener("focus", () => find().open());
  element.addEventListener("keydown", (event) => {
    const byRank = [...ORDER].reverse();
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (event.key in steps && N) {
      event.preventDefault();
      const from = selection.current >= 0 ? byRank.indexOf(selection.current) : steps[event.key] > 0 ? -1 : N;
      const to = Math.max(0, Math.min(N - 1, from + steps[event.key]));
      setCurrent(byRank[to]);
      const anchor = find().anchor(byRank[to]);
      const box = element.getBoundingClientRect();
      showTip(byRank[to], box.left + (anchor?.[0] ?? 40), box.top + (anchor?.[1] ?? 40));
      say(`${title(byRank[to])}: ${lines(byRank[to]).map((pair) => pair.join(" ")).join(", ")}`);
    } else if ((event.key === "Enter" || event.key === " ") && selection.current >= 0) {
      event.preventDefault();
      clicked(selection.current, event);
    }
  });
  element.addEventListener("blur", () => {
    setCurrent(-1);
    hideTip();
  });
}
