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
  const told = `${N} trials`;
  const metrics = Object.keys(CURVES.metrics);
  if (box("curves") && metrics.length) {
    const curves = new CurvePlot(box("curves"), `Learning curves: ${metrics[0]} by epoch, ${told}`, metrics[0]);
    metrics.forEach((name) => box("metric").append(option(name, name)));
    box("metric").addEventListener("change", (event) => {
      curves.metric = event.target.value;
      curves.box.setAttribute("aria-label", `Learning curves: ${curves.metric} by epoch, ${told}`);
      curves.draw();
    });
  }
  if (box("history")) new HistoryPlot(box("history"), `${first.name} by the order of trials, with the best so far; ${goal(first)}`, first);
  if (box("parallel")) openParallel(told);
  if (box("slices")) {
    for (const field of PARAMS.slice(0, DATA.most.slices)) {
      const label = `${first.name} by ${field.name}, ${told}; ${goal(first)}`;
      new PointPlot(figureIn(box("slices"), `${first.name} by ${field.name}`, "small"), label, field, first);
    }
  }
  if (box("contour")) openContour(first);
  if (box("pareto")) openPareto();
  if (box("timeline")) new TimelinePlot(box("timeline"), `Timeline: when each trial ran on which worker, ${DATA.timeline.lanes.length} lanes`);
  openBudget();
  for (const [at, one] of DATA.importance.entries()) {
    const rows = one.rows.map((row) => `${row.param} ${Math.round(100 * row.share)} %`).join(", ");
    const heading = DATA.importance.length > 1 ? one.metric : "";
    new ImportancePlot(figureIn(box("importance"), heading, "free"), `Importance for ${one.metric}: ${rows}`, one.rows, at);
  }
}

function openParallel(told) {
  const fields = [...OBJECTIVES, ...PARAMS];
  const shown = fields.slice(0, OBJECTIVES.length + DATA.most.axes);
  const plot = new ParallelPlot(box("parallel"), `Parallel coordinates of ${shown.map((field) => field.name).join(", ")}; ${told}`, shown);
  const tall = () => (box("parallel").style.height = plot.lying ? `${80 + 66 * plot.fields.length}px` : "");
  tall();
  addEventListener("resize", tall);
  const list = box("axes");
  fields.forEach((field, at) => {
    const label = document.createElement("label");
    const check = document.createElement("input");
    check.type = "checkbox";
    check.checked = at < shown.length;
    check.addEventListener("change", () => {
      const chosen = fields.filter((_, other) => list.querySelectorAll("input")[other].checked);
      if (chosen.length < 2) {
        check.checked = true;
        return;
      }
      select(plot, null);
      plot.forget();
      plot.fields = chosen;
      tall();
      plot.resize();
    });
    label.append(check, isolate(field.name));
    list.append(label);
  });
}

function openContour(first) {
  const [x, y, objective] = [box("contour-x"), box("contour-y"), box("contour-of")];
  PARAMS.forEach((field, at) => {
    x.append(option(String(at), field.name));
    y.append(option(String(at), field.name));
  });
  OBJECTIVES.forEach((field, at) => objective.append(option(String(at), field.name)));
  y.value = "1";
  const label = () => `${OBJECTIVES[objective.value].name} between the trials, by ${PARAMS[x.value].name} and ${PARAMS[y.value].name}`;
  const plot = new ContourPlot(box("contour"), label(), PARAMS[0], PARAMS[1], first);
  for (const chooser of [x, y, objective]) {
    chooser.addEventListener("change", () => {
      [plot.across_, plot.down_, plot.objective] = [PARAMS[x.value], PARAMS[y.value], OBJECTIVES[objective.value]];
      plot.box.setAttribute("aria-label", label());
      plot.draw();
    });
  }
}

function openPareto() {
  const [x, y] = [box("pareto-x"), box("pareto-y")];
  OBJECTIVES.forEach((field, at) => {
    x.append(option(String(at), `${field.name} (${goal(field)})`));
    y.append(option(String(at), `${field.name} (${goal(field)})`));
  });
  y.value = "1";
  const label = () => `${OBJECTIVES[y.value].name} by ${OBJECTIVES[x.value].name}, with the Pareto front`;
  const plot = new ParetoPlot(box("pareto"), label(), OBJECTIVES[0], OBJECTIVES[1]);
  for (const chooser of [x, y]) {
    chooser.addEventListener("change", () => {
      [plot.across_, plot.down_] = [OBJECTIVES[x.value], OBJECTIVES[y.value]];
      plot.box.setAttribute("aria-label", label());
      plot.draw();
    });
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
function watch() {
  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const plot = plots.find((one) => one.box === entry.target);
        plot.visible = entry.isIntersecting;
        if (plot.visible) plot.open();
        if (plot.visible && plot.stale) plot.paint(true);
      }
    },
    { rootMargin: "160px" },
  );
  for (const plot of plots) {
    seen.observe(plot.box);
    if (plot.pick) openKeyboard(plot);
  }
  selection.listeners.push((settled) => {
    const slow = isSlow(settled);
    for (const plot of plots) {
      if (plot.visible && (!slow || plot === selection.source)) plot.paint(settled);
      else plot.stale = true;
    }
    clearTimeout(resting);
    resting = setTimeout(paintAll, settled ? 250 : 400);
  });
  let resizing = 0;
  new ResizeObserver(() => {
    clearTimeout(resizing);
    resizing = setTimeout(() => plots.forEach((plot) => plot.chart && plot.resize()), 60);
  }).observe(document.body);
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

if (N) {
  openControls();
  readTheme();
  showLegend();
  openTable();
  openPlots();
  watch();
  openPrinting();
  showSelection(false);
} else {
  box("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
}
document.documentElement.dataset.ready = "yes";
