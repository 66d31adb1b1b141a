"use strict";
// What the reader works with beside the charts: the bar, the form, the keyboard, and what is said of a trial.

const modes = { brush: matchMedia("(pointer: coarse)").matches ? "none" : "rect" };

function option(value, text) {
  const element = document.createElement("option");
  element.value = value;
  element.textContent = text;
  return element;
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
  const told = selection.mask ? `${selection.count} of ${N} trials selected` : `${N} trials, none selected`;
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

function openControls() {
  const colour = document.getElementById("colour");
  FIELDS.forEach((field, at) => colour.append(option(String(at), field.name)));
  if (SEVERAL) colour.append(option("sweep", "sweep"));
  colour.append(option("status", "status"));
  if (SEVERAL) colour.value = "sweep";
  colour.addEventListener("change", redraw);
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

// Selecting by values: all that boxes can, without a pointer.
function openForm() {
  const form = document.getElementById("values");
  const field = form.elements.field;
  const known = [
    ...FIELDS,
    { name: "rank", numeric: true, values: TRIALS.rank },
    { name: "epochs", numeric: true, values: TRIALS.epochs },
    { name: "status", numeric: false, labels: STATUSES, values: TRIALS.status },
  ];
  if (SEVERAL) known.push({ name: "sweep", numeric: false, labels: DATA.sweeps.map((one) => one.name), values: TRIALS.sweep });
  known.forEach((one, at) => field.append(option(String(at), one.name)));
  const adapt = () => {
    const one = known[Number(field.value)];
    form.querySelector(".range").hidden = !one.numeric;
    form.querySelector(".choice").hidden = one.numeric;
    if (!one.numeric) form.elements.choices.replaceChildren(...one.labels.map((label, at) => option(String(at), label)));
  };
  field.addEventListener("change", adapt);
  adapt();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const one = known[Number(field.value)];
    const chosen = new Set([...form.elements.choices.selectedOptions].map((item) => Number(item.value)));
    const from = form.elements.from.value === "" ? -Infinity : Number(form.elements.from.value);
    const to = form.elements.to.value === "" ? Infinity : Number(form.elements.to.value);
    const holds = one.numeric ? (value) => value !== null && value >= from && value <= to : (value) => chosen.has(value);
    select(form, Uint8Array.from(one.values, (value) => (holds(value) ? 1 : 0)));
  });
}

// In a chart: arrows go from trial to trial by rank, Enter selects.
function openKeyboard(plot) {
  const byRank = [...ORDER].reverse();
  const place = Array(N);
  byRank.forEach((trial, at) => (place[trial] = at));
  plot.box.addEventListener("focus", () => plot.open());
  plot.box.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (event.key in steps && N) {
      event.preventDefault();
      const from = selection.current >= 0 ? place[selection.current] : steps[event.key] > 0 ? -1 : N;
      const to = Math.max(0, Math.min(N - 1, from + steps[event.key]));
      setCurrent(byRank[to]);
      const anchor = plot.anchor(byRank[to]);
      const box = plot.box.getBoundingClientRect();
      showTip(byRank[to], box.left + (anchor?.[0] ?? 40), box.top + (anchor?.[1] ?? 40));
      say(`${title(byRank[to])}: ${lines(byRank[to]).map((pair) => pair.join(" ")).join(", ")}`);
    } else if ((event.key === "Enter" || event.key === " ") && selection.current >= 0) {
      event.preventDefault();
      clicked(selection.current, event);
    }
  });
  plot.box.addEventListener("blur", () => {
    setCurrent(-1);
    hideTip();
  });
}
