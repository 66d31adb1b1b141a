"use strict";
// Puts charts into the page's boxes, and keeps those in view up to date.

function box(id) {
  return document.getElementById(id);
}

function figureIn(parent, heading, tall = "") {
  const element = document.createElement("figure");
  const chart = document.createElement("div");
  chart.className = `plot ${tall}`;
  if (heading) {
    const caption = document.createElement("figcaption");
    caption.append(isolate(heading));
    element.append(caption);
  }
  element.append(chart);
  parent.append(element);
  return chart;
}

const goal = (field) => (field.goal === "minimize" ? "lower is better" : "higher is better");

function openPlots() {
  const first = OBJECTIVES[0];
  const told = `${inThousands(N)} trials`;
  if (box("curves")) openCurves(told);
  if (box("history")) new HistoryPlot(box("history"), `${first.name} by the order of trials, with the best so far; ${goal(first)}`, first);
  if (box("parallel")) openParallel(told);
  if (box("slices")) openSlices(first, told);
  if (box("contour")) openContour();
  if (box("pareto")) openPareto();
  if (box("timeline")) new TimelinePlot(box("timeline"), `Timeline: when each trial ran on which worker, ${DATA.timeline.lanes.length} lanes`);
  openBudget();
  if (box("importance")) openImportance();
}

function openCurves(told) {
  const metrics = Object.keys(CURVES.metrics);
  if (!metrics.length) return;
  const chooser = box("metric");
  fillChooser(chooser, metrics);
  const label = () => `Learning curves: ${metrics[chooser.value]} by epoch, ${told}`;
  const curves = new CurvePlot(box("curves"), label(), metrics[chooser.value]);
  openCurveControls(curves);
  chooser.onchange = () => {
    curves.metric = metrics[chooser.value];
    curves.box.setAttribute("aria-label", label());
    curves.draw();
  };
}

function openSlices(first, told) {
  box("slices").replaceChildren();
  for (const field of PARAMS.slice(0, DATA.most.slices)) {
    const label = `${first.name} by ${field.name}, ${told}; ${goal(first)}`;
    new PointPlot(figureIn(box("slices"), `${first.name} by ${field.name}`, "small"), label, field, first);
  }
}

function openImportance() {
  box("importance").replaceChildren();
  for (const [at, one] of DATA.importance.entries()) {
    const rows = one.rows.map((row) => `${row.param} ${Math.round(100 * row.share)} %`).join(", ");
    const heading = DATA.importance.length > 1 ? one.metric : "";
    new ImportancePlot(figureIn(box("importance"), heading, "free"), `Importance for ${one.metric}: ${rows}`, at);
  }
}

let axesTaken = null; // names of the axes that the reader has chosen

function openParallel(told) {
  const fields = [...OBJECTIVES, ...PARAMS];
  const first = fields.slice(0, OBJECTIVES.length + DATA.most.axes);
  const shown = axesTaken ? fields.filter((field) => axesTaken.has(field.name)) : first;
  const plot = new ParallelPlot(box("parallel"), `Parallel coordinates of ${shown.map((field) => field.name).join(", ")}; ${told}`, shown);
  const list = box("axes");
  list.replaceChildren();
  for (const field of fields) {
    const label = document.createElement("label");
    const check = document.createElement("input");
    check.type = "checkbox";
    check.checked = shown.includes(field);
    check.addEventListener("change", () => {
      const names = fields.map((one) => one.name);
      const taken = names.filter((_, other) => list.querySelectorAll("input")[other].checked);
      if (taken.length < 2) {
        check.checked = true;
        return;
      }
      axesTaken = new Set(taken);
      select(plot, null);
      plot.forget();
      plot.fields = [...OBJECTIVES, ...PARAMS].filter((one) => axesTaken.has(one.name));
      plot.resize();
    });
    label.append(check, isolate(field.name));
    list.append(label);
  }
}

function openContour() {
  const [x, y, objective] = [box("contour-x"), box("contour-y"), box("contour-of")];
  const names = PARAMS.map((field) => field.name);
  fillChooser(x, names);
  fillChooser(y, names, 1);
  fillChooser(objective, OBJECTIVES.map((field) => field.name));
  const label = () => `${OBJECTIVES[objective.value].name} between the trials, by ${PARAMS[x.value].name} and ${PARAMS[y.value].name}`;
  const plot = new ContourPlot(box("contour"), label(), PARAMS[x.value], PARAMS[y.value], OBJECTIVES[objective.value]);
  for (const chooser of [x, y, objective]) {
    chooser.onchange = () => {
      [plot.across_, plot.down_, plot.objective] = [PARAMS[x.value], PARAMS[y.value], OBJECTIVES[objective.value]];
      plot.box.setAttribute("aria-label", label());
      plot.draw();
    };
  }
}

function openPareto() {
  const [x, y] = [box("pareto-x"), box("pareto-y")];
  const names = OBJECTIVES.map((field) => `${field.name} (${goal(field)})`);
  fillChooser(x, names);
  fillChooser(y, names, 1);
  const label = () => `${OBJECTIVES[y.value].name} by ${OBJECTIVES[x.value].name}, with the Pareto front`;
  const plot = new ParetoPlot(box("pareto"), label(), OBJECTIVES[x.value], OBJECTIVES[y.value]);
  for (const chooser of [x, y]) {
    chooser.onchange = () => {
      [plot.across_, plot.down_] = [OBJECTIVES[x.value], OBJECTIVES[y.value]];
      plot.box.setAttribute("aria-label", label());
      plot.draw();
    };
  }
}

// While something is dragged and frames take long, the chart in hand is drawn in each,
// the others in every fifth.
const pace = { last: 0, frame: 0, mean: 16 };
function isSlow(settled) {
  const now = performance.now();
  const took = now - pace.last;
  pace.last = now;
  if (settled || took > 1000) {
    pace.mean = 16;
    return false;
  }
  pace.mean += 0.3 * (took - pace.mean);
  return pace.mean > 24 && pace.frame++ % 5 !== 0;
}

let resting = 0;
function paintAll() {
  for (const plot of plots) if (plot.chart && plot.stale) plot.paint(true);
}

// A chart is made when it comes near the view, and follows the selection while it is in view.
const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const plot = plots.find((one) => one.box === entry.target);
      if (!plot) continue; // closed since
      plot.visible = entry.isIntersecting;
      if (!plot.visible) continue;
      plot.open();
      plot.refresh();
      if (plot.stale) plot.paint(true);
    }
  },
  { rootMargin: "160px" },
);

// The page may grow with each message, which changes no chart: only charts whose own box has changed are drawn anew.
const resized = new Set();
let resizing = 0;
const sized = new ResizeObserver((entries) => {
  for (const entry of entries) resized.add(entry.target);
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    for (const plot of plots) if (plot.chart && resized.has(plot.box)) plot.resize();
    resized.clear();
  }, 60);
});

function watchPlots() {
  for (const plot of plots) {
    seen.observe(plot.box);
    sized.observe(plot.box);
    if (plot.pick && !plot.box.dataset.keys) openKeyboard(plot.box);
  }
}

function followSelection() {
  selection.listeners.push((settled) => {
    const slow = isSlow(settled);
    for (const plot of plots) {
      if (plot.visible && (!slow || plot === selection.source)) plot.paint(settled);
      else plot.stale = true;
    }
    clearTimeout(resting);
    resting = setTimeout(paintAll, settled ? 250 : 400);
  });
}

// On paper: light, all charts, the best of the table.
function openPrinting() {
  let before;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    table.printing = true;
    showRows();
    document.documentElement.classList.add("printing"); // as wide as paper, so that canvases are made for it
    for (const plot of plots) plot.open();
    setTheme("light");
    for (const plot of plots) plot.resize();
    for (const details of document.querySelectorAll("details.printed")) details.open = true;
  });
  addEventListener("afterprint", () => {
    table.printing = false;
    document.documentElement.classList.remove("printing");
    setTheme(before);
    for (const plot of plots) plot.resize();
    showRows();
  });
}

// Once a page: all that is drawn from the first document with trials, and what the reader works with.
function openReport() {
  openControls();
  readTheme();
  showLegend();
  openTable();
  openPlots();
  watchPlots();
  followSelection();
  openPrinting();
  showSelection(false);
}

// The names of all that has a chart or a column; charts are made anew only where these change.
function outlineReport() {
  const names = (fields) => fields.map((field) => [field.name, Boolean(field.labels)]);
  const importance = DATA.importance.map((one) => [one.metric, one.rows.length]);
  const units = DATA.budgets.map((one) => one.unit);
  const boxes = [...document.querySelectorAll(".plot[id]")].map((element) => element.id);
  return JSON.stringify([names(OBJECTIVES), names(PARAMS), Object.keys(CURVES.metrics), Object.keys(CURVES.across), importance, units, boxes]);
}

// After `readData`: the page shows the new document; what was selected and chosen stays. `known`: the columns before,
// `outline`: what `outlineReport` said then.
function renewReport(known, outline) {
  keepSelection(known);
  fillColours();
  fillForm();
  fillTable();
  readTheme();
  showLegend();
  if (outlineReport() === outline) {
    for (const plot of plots) plot.renew();
  } else {
    closePlots();
    openPlots();
    watchPlots();
  }
  notify(true);
}

// What was selected in a chart stays selected, as if its trials had been clicked on.
function closePlots() {
  if (selection.mask) selection.parts = new Map([[picked, selection.mask]]);
  for (const plot of plots) {
    seen.unobserve(plot.box);
    sized.unobserve(plot.box);
    plot.close();
  }
  plots.length = 0;
}

// A page without charts still has two themes.
function openTheme() {
  box("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
}
