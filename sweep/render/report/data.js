"use strict";
// What the page is made of: the document's columns, and where their values lie on an axis (0 to 1).

let DATA; // the document
let TRIALS; // its columns over the trials
let N = 0; // trials
let STATUSES = [];
let LOST = new Set();
let PRUNED = -1;
let OPEN = new Set();
let CURVES;
let OBJECTIVES = []; // what a trial can be placed and selected by: objectives and parameters
let PARAMS = [];
let FIELDS = [];
let SEVERAL = false; // sweeps
let ORDER = []; // trials from the worst to the best, so that the best are drawn above the others

// Takes a document; what was made of the one before is replaced.
function readData(content) {
  DATA = content;
  TRIALS = DATA.trials;
  N = TRIALS.trial.length;
  STATUSES = DATA.statuses;
  LOST = new Set(["diverged", "oom", "failed"].map((name) => STATUSES.indexOf(name)));
  PRUNED = STATUSES.indexOf("pruned");
  OPEN = new Set(["running", "interrupted"].map((name) => STATUSES.indexOf(name)));
  CURVES = readCurves();
  readFields();
  SEVERAL = DATA.sweeps.length > 1;
  ORDER = Array.from({ length: N }, (_, at) => at).sort((one, other) => (TRIALS.rank[other] ?? N + 1) - (TRIALS.rank[one] ?? N + 1));
}

function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) found[at] = raw.charCodeAt(at);
  return found.buffer;
}

function readCurves() {
  return {
    starts: new Int32Array(bytes(DATA.curves.starts)),
    epochs: new Int32Array(bytes(DATA.curves.epochs)),
    metrics: Object.fromEntries(
      DATA.curves.metrics.map((one) => [one.name, new Float32Array(bytes(one.values))]),
    ),
    across: Object.fromEntries(DATA.curves.across.map((one) => [one.name, new Float32Array(bytes(one.values))])),
    tails: new Map(), // by trial: epochs that came after the document, [{ epoch, metrics, time_s, examples }]
  };
}

const TRAINING_TIME = "seconds of training";
const EXAMPLES = "examples";

// Where the points of a trial's curve lie across: "epoch", or what was trained up to each epoch.
function acrossOf(trial, axis) {
  const known = axis === "epoch" ? CURVES.epochs : CURVES.across[axis];
  const places = known.subarray(CURVES.starts[trial], CURVES.starts[trial + 1]);
  const tail = CURVES.tails.get(trial);
  if (!tail) return places;
  let sum = places.length ? places[places.length - 1] : 0;
  return [...places, ...tail.map((one) => (axis === "epoch" ? one.epoch : (sum += axis === EXAMPLES ? one.examples : one.time_s)))];
}

// The epochs and the values of a trial's curve.
function curveOf(trial, metric) {
  const [from, to] = [CURVES.starts[trial], CURVES.starts[trial + 1]];
  const epochs = CURVES.epochs.subarray(from, to);
  const values = CURVES.metrics[metric].subarray(from, to);
  const tail = CURVES.tails.get(trial);
  if (!tail) return [epochs, values];
  return [[...epochs, ...tail.map((one) => one.epoch)], [...values, ...tail.map((one) => one.metrics[metric] ?? NaN)]];
}

function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) {
    return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return String(Number(value.toPrecision(4)));
}

// A whole number that counts something: 10,000.
function inThousands(count) {
  return count.toLocaleString("en");
}

function seconds(value) {
  if (value < 120) return `${figure(value)} s`;
  if (value < 7200) return `${(value / 60).toFixed(1)} min`;
  if (value < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} d`;
}

// A canvas cannot isolate a text of another direction as an element can, so its marks do.
function isolated(text) {
  return /[\u0590-\u08ff\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufeff]/.test(text)
    ? `\u2068${text}\u2069`
    : text;
}

function shortened(text, most) {
  const letters = [...text];
  return isolated(letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text);
}

// 1, 2 or 5 times a power of ten, not below `rough`.
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * (1 - 1e-9));
}

function numberScale(low, high, log, pad = 0.04, format = figure) {
  const forward = log ? Math.log10 : (value) => value;
  const back = log ? (value) => 10 ** value : (value) => value;
  let from = forward(low);
  let to = forward(high);
  const flat = to - from <= 1e-12 * Math.max(Math.abs(from), Math.abs(to), 1e-12);
  const margin = flat ? (log ? 0.5 : Math.abs(from) / 10 || 0.5) : (to - from) * pad;
  from -= margin;
  to += margin;
  const at = (value) =>
    value === null || (log && !(value > 0)) ? NaN : (forward(value) - from) / (to - from);
  const ticks = [];
  const add = (value) => {
    const place = at(value);
    if (place >= -1e-9 && place <= 1 + 1e-9) ticks.push({ at: place, label: format(value) });
  };
  if (log && to - from >= 0.9) {
    const factors = to - from > 3 ? [1] : to - from > 1.6 ? [1, 3] : [1, 2, 5];
    const every = Math.ceil((to - from) / 8);
    for (let power = Math.floor(from); power <= to; power += every) {
      for (const factor of factors) add(Number(`${factor}e${power}`));
    }
  } else {
    const step = niceStep((back(to) - back(from)) / 6);
    for (let mark = Math.ceil(back(from) / step - 1e-9); mark * step <= back(to) + step * 1e-9; mark++) {
      add(Number((mark * step).toPrecision(12)));
    }
  }
  return { log, at, ticks, value: (place) => back(from + place * (to - from)) };
}

function choiceScale(labels) {
  return {
    labels,
    at: (code) => (code === null || code < 0 ? NaN : (code + 0.5) / labels.length),
    ticks: labels.map((label, code) => ({ at: (code + 0.5) / labels.length, label })),
    value: (place) => place * labels.length - 0.5,
  };
}

function extremes(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

// Whether axes show all values, or only those that matter; `changed` draws anew what depends on it.
const ranges = { whole: false, changed: () => redraw() };

const FEWEST = 5; // values from which one can be said to lie far from the others
const FAR = 2; // times the length of the middle half, beyond it

// The range of the values that matter. Without what is far worse than the middle half, or without a goal far from it on
// either side, where this would take more than half of the axis: one trial at chance level would flatten all others.
function usualRange(values, goal = "", log = false) {
  const known = Float64Array.from(values.filter((value) => value !== null && Number.isFinite(value) && (!log || value > 0))).sort();
  if (known.length < FEWEST) return extremes(known);
  const forward = log ? Math.log10 : (value) => value;
  const quantile = (share) => forward(known[Math.round(share * (known.length - 1))]);
  const [from, to] = [quantile(0.25), quantile(0.75)];
  const away = FAR * (to - from);
  const isNear = (value) => (goal === "maximize" || forward(value) <= to + away) && (goal === "minimize" || forward(value) >= from - away);
  const near = known.filter(isNear);
  const all = [known[0], known[known.length - 1]];
  const kept = [near[0], near[near.length - 1]];
  const isFlattened = forward(all[1]) - forward(all[0]) > 2 * (forward(kept[1]) - forward(kept[0]));
  return isFlattened ? kept : all;
}

// Without the outermost twentieths where these would take most of the axis.
function robust(values) {
  const known = Float64Array.from(values.filter((value) => value !== null && Number.isFinite(value))).sort();
  if (known.length < 20) return extremes(known);
  const edge = Math.floor(known.length / 20);
  const [low, high] = [known[0], known[known.length - 1]];
  const inner = [known[edge], known[known.length - 1 - edge]];
  const margin = (inner[1] - inner[0]) / 5;
  if (margin > 0 && high - low > 4 * (inner[1] - inner[0])) {
    return [Math.max(low, inner[0] - margin), Math.min(high, inner[1] + margin)];
  }
  return [low, high];
}

// An objective with its two axes, of which `ranges` says which one is drawn.
function makeObjective(one) {
  const all = extremes(one.values);
  const usual = usualRange(one.values, one.goal, one.log);
  const isLog = ([low, high]) => one.log && high / low >= 100;
  const scales = { all: numberScale(...all, one.log), usual: numberScale(...usual, isLog(usual)) };
  return {
    ...one,
    numeric: true,
    all,
    isCut: usual[0] !== all[0] || usual[1] !== all[1],
    get range() {
      return ranges.whole ? all : usual;
    },
    get scale() {
      return ranges.whole ? scales.all : scales.usual;
    },
  };
}

function readFields() {
  OBJECTIVES = DATA.objectives.map(makeObjective);
  PARAMS = DATA.params.map((one) => {
    if (one.labels) return { ...one, numeric: false, scale: choiceScale(one.labels) };
    const [low, high] = extremes(one.values);
    const scale = numberScale(low, high, one.log);
    const values = new Set(one.values.filter((value) => value !== null));
    const few = one.listed && values.size <= 6;
    if (few) scale.ticks = [...values].sort((a, b) => a - b).map((value) => ({ at: scale.at(value), label: figure(value) }));
    return { ...one, numeric: true, few, scale, range: [low, high], all: [low, high] };
  });
  FIELDS = [...OBJECTIVES, ...PARAMS];
}

// The field of this name in the present document.
function fieldNamed(name) {
  return FIELDS.find((field) => field.name === name);
}

function shown(field, trial) {
  const value = field.values[trial];
  if (value === null || value < 0 && field.labels) return "not set";
  return field.labels ? field.labels[value] : figure(value);
}

function title(trial) {
  const sweep = SEVERAL ? `${DATA.sweeps[TRIALS.sweep[trial]].name}, ` : "";
  const rank = TRIALS.rank[trial] === null ? "" : `, rank ${TRIALS.rank[trial]}`;
  return `${sweep}trial ${TRIALS.trial[trial]}, ${TRIALS.outcome[trial]}${rank}`;
}

function lines(trial) {
  const told = OBJECTIVES.map((field) => [field.name, figure(field.values[trial])]);
  for (const field of PARAMS) told.push([field.name, shown(field, trial)]);
  told.push(["epochs", inThousands(TRIALS.epochs[trial])]);
  if (DATA.reasons[TRIALS.reason[trial]]) told.push(["reason", DATA.reasons[TRIALS.reason[trial]]]);
  return told;
}
