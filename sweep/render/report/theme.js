"use strict";
// Colours: of the page, by its style sheet; of trials, by what the reader wants to see.

const theme = { ink: "", faint: "", line: "", paper: "", accent: "", dark: false, font: "", palette: [], group: () => 0, legend: [] };

// Okabe and Ito's colours, told apart by colour-blind people too; the second set for dark paper.
const APART = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b0508a", "#8a6d00", "#3fa0d8", "#5b5b5b", "#7a4fb5"],
  dark: ["#56b4e9", "#ee8a3c", "#2fc79b", "#e29ac6", "#e5d04a", "#9fd4f5", "#b9b9b9", "#bb9cf0"],
};
const BY_STATUS = {
  light: { running: "#8a6d00", completed: "#0072b2", pruned: "#7d8694", infeasible: "#009e73", diverged: "#d55e00", oom: "#b0508a", failed: "#b3261e", interrupted: "#7a4fb5" },
  dark: { running: "#e5d04a", completed: "#56b4e9", pruned: "#8d97a6", infeasible: "#2fc79b", diverged: "#ee8a3c", oom: "#e29ac6", failed: "#ff8a80", interrupted: "#bb9cf0" },
};
// Viridis in eight steps, from the worst to the best: the best stands out from either paper. On the dark one, thin rings
// of the worst are seen only if they are lighter than there.
const STEPS = {
  light: ["#b9d35a", "#7cc36b", "#49ae7c", "#2b9788", "#2a7e8e", "#34618d", "#433f85", "#440154"],
  dark: ["#6f68b3", "#5279ad", "#4089a3", "#2f9a94", "#38b182", "#69c968", "#aadc46", "#fde725"],
};

function readTheme() {
  readPaper();
  colourBy(document.getElementById("colour").value);
}

function readPaper() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  for (const name of ["ink", "faint", "line", "paper", "accent"]) theme[name] = read(name);
  theme.dark = read("scheme") === "dark";
  theme.font = getComputedStyle(document.body).fontFamily;
}

function colourBy(what) {
  const kind = theme.dark ? "dark" : "light";
  if (what === "sweep") {
    grouped(TRIALS.sweep, DATA.sweeps.map((one) => one.name), APART[kind]);
  } else if (what === "status") {
    grouped(TRIALS.status, STATUSES, STATUSES.map((name) => BY_STATUS[kind][name]));
  } else {
    const field = FIELDS[Number(what)] ?? FIELDS[0];
    if (field.labels) grouped(field.values.map((code) => code ?? -1), field.labels, APART[kind]);
    else stepped(field, STEPS[kind]);
  }
}

function grouped(codes, names, colours) {
  const used = new Set(codes);
  theme.palette = [...names.map((_, at) => colours[at % colours.length]), theme.faint];
  theme.group = (trial) => (codes[trial] >= 0 ? codes[trial] : names.length);
  theme.legend = names.map((name, at) => [name, theme.palette[at]]).filter((_, at) => used.has(at));
}

// By the value, on the scale that the axes have too; what lies outside of it has the colour of its end.
function stepped(field, colours) {
  if (field.few) {
    byValue(field, colours);
    return;
  }
  const last = colours.length - 1;
  const falling = field.goal === "minimize";
  const { scale, all } = field;
  const [low, high] = field.range;
  const [from, to] = [scale.at(low), scale.at(high)];
  const length = to - from || 1;
  theme.palette = [...colours, theme.faint];
  theme.group = (trial) => {
    const place = scale.at(field.values[trial]);
    if (Number.isNaN(place)) return colours.length;
    const share = Math.max(0, Math.min(1, (place - from) / length));
    const step = Math.min(last, Math.floor(share * colours.length));
    return falling ? last - step : step;
  };
  const isKnown = field.values.some((value) => value !== null && Number.isFinite(value));
  if (isKnown && all[0] === all[1]) {
    theme.group = (trial) => (Number.isNaN(scale.at(field.values[trial])) ? colours.length : last);
    theme.legend = [[figure(low), colours[last]]];
    return;
  }
  const ends = [`${all[0] < low ? "≤ " : ""}${figure(low)}`, `${all[1] > high ? "≥ " : ""}${figure(high)}`];
  if (falling) ends.reverse();
  const labels = new Map([[0, ends[0]], [Math.ceil(last / 2), figure(scale.value(from + length / 2))], [last, ends[1]]]);
  theme.legend = isKnown ? colours.map((colour, at) => [labels.get(at) ?? "", colour]) : [];
  theme.legend.ramp = true;
}

// A few values, each with a colour of its own.
function byValue(field, colours) {
  const values = [...new Set(field.values.filter((value) => value !== null))].sort((a, b) => a - b);
  const step = (colours.length - 1) / Math.max(values.length - 1, 1);
  const codes = field.values.map((value) => values.indexOf(value));
  grouped(codes, values.map(figure), values.map((_, at) => colours[Math.round(at * step)]));
}
