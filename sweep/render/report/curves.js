"use strict";
// Learning curves: a line for each trial, or for the trials of a configuration their mean and range.

// What the reader has chosen for all curves of a page: what is across, the share of the value before in each point, and
// whether trials that differ only in their seeds are drawn together.
const curveView = { across: "epoch", smoothing: 0, bands: false };

// An exponential mean: each value counts `share` as much as the one after it. The first values are not drawn towards 0.
function smooth(values, share) {
  if (!share) return values;
  let [sum, weight] = [0, 0];
  return Array.from(values, (value) => {
    if (!Number.isFinite(value)) return value;
    sum = share * sum + (1 - share) * value;
    weight = share * weight + (1 - share);
    return sum / weight;
  });
}

// The mean, the least and the greatest value of some trials at each epoch that all of them have.
function meanOf(trials, metric, axis) {
  const curves = trials.map((trial) => {
    const [epochs, values] = curveOf(trial, metric);
    const [places, smoothed] = [acrossOf(trial, axis), smooth(values, curveView.smoothing)];
    return new Map(Array.from(epochs, (epoch, at) => [epoch, [places[at], smoothed[at]]]));
  });
  const drawn = curves.filter((curve) => curve.size);
  if (drawn.length < 2) return [];
  const points = [];
  for (const epoch of drawn[0].keys()) {
    const found = drawn.map((curve) => curve.get(epoch));
    if (found.some((one) => !one || !Number.isFinite(one[1]))) continue;
    const values = found.map((one) => one[1]);
    const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;
    points.push({ x: mean(found.map((one) => one[0])), mean: mean(values), low: Math.min(...values), high: Math.max(...values) });
  }
  return points;
}

class CurvePlot extends LinePlot {
  constructor(box, label, metric) {
    super(box, label);
    this.metric = metric;
    this.readControls = () => {};
  }

  rebind() {
    this.readControls();
  }

  options() {
    const goal = OBJECTIVES.find((field) => field.name === this.metric)?.goal;
    const lasts = this.lastValues();
    const all = this.wholeExtent();
    const usual = this.usualExtent(usualRange(lasts, goal), lasts);
    this.cut = usual[0] > all[0] || usual[1] < all[1];
    const [low, high] = ranges.whole ? all : usual;
    this.y = numberScale(low, high, low > 0 && goal !== "maximize" && high / low >= 100);
    this.xName = this.axisName;
    const first = this.xName === "epoch" ? 1 : 0;
    let last = first;
    for (const trial of TRIALS.trial.keys()) {
      const places = acrossOf(trial, this.xName);
      if (places.length && places[places.length - 1] > last) last = places[places.length - 1];
    }
    const format = this.xName === TRAINING_TIME ? figure : (value) => (Number.isInteger(value) ? inThousands(value) : "");
    this.x = numberScale(first, Math.max(last, first + (this.xName === TRAINING_TIME ? 1e-3 : 1)), false, 0.02, format);
    this.x.ticks = this.x.ticks.filter((tick) => tick.label);
    return super.options();
  }

  // The last value of each trial; NaN where it has none.
  lastValues() {
    if (!CURVES.metrics[this.metric]) return [];
    return TRIALS.trial.map((_, trial) => {
      const values = curveOf(trial, this.metric)[1];
      for (let at = values.length - 1; at >= 0; at--) if (Number.isFinite(values[at])) return values[at];
      return NaN;
    });
  }

  // The range of all points.
  wholeExtent() {
    const tails = [...CURVES.tails.values()].flat();
    const [values, later] = [CURVES.metrics[this.metric] ?? [], tails.map((one) => one.metrics[this.metric] ?? NaN)];
    const known = [extremes(values), extremes(later)].filter((_, at) => [values, later][at].some(Number.isFinite));
    return known.length ? extremes(known.flat()) : [0, 1];
  }

  // The range of the curves that end in a range, without the outermost of their points.
  usualExtent([low, high], lasts) {
    const step = Math.ceil((CURVES.metrics[this.metric]?.length ?? 0) / 50000) || 1;
    const found = [];
    for (const trial of TRIALS.trial.keys()) {
      if (!(lasts[trial] >= low && lasts[trial] <= high)) continue;
      const values = curveOf(trial, this.metric)[1];
      for (let at = trial % step; at < values.length; at += step) found.push(values[at]);
    }
    return robust(found);
  }

  get isCut() {
    return this.cut;
  }

  tellWhatLiesOutside(count) {
    return count === 1 ? "A part of one curve lies outside of this range." : `Parts of ${inThousands(count)} curves lie outside of this range.`;
  }

  // Curves end at the axes; only marks may lie across them.
  clip() {
    const { x, y, width, height } = this.rect;
    return new echarts.graphic.Rect({ shape: { x: x - 6, y: y - 1, width: width + 12, height: height + 2 } });
  }

  get outside() {
    return this.beyond.reduce((sum, is) => sum + is, 0);
  }

  place(trials = null) {
    if (!trials) {
      this.paths = new Array(N).fill(null);
      this.coarse = new Array(N).fill(null);
      this.beyond = new Uint8Array(N);
    }
    if (!CURVES.metrics[this.metric]) return;
    for (const trial of trials ?? TRIALS.trial.keys()) {
      this.paths[trial] = this.path(trial);
      this.coarse[trial] = coarse(this.paths[trial]);
    }
    this.bands = curveView.bands ? this.placeBands() : new Map();
  }

  // What is across: as chosen, if it is known of this document.
  get axisName() {
    return curveView.across in CURVES.across ? curveView.across : "epoch";
  }

  // By configuration with several trials: its band, as {trials, mean, area} in pixels.
  placeBands() {
    const bands = new Map();
    DATA.table.trials.forEach((trials, row) => {
      const points = trials.length > 1 ? meanOf(trials, this.metric, this.axisName) : [];
      if (points.length < 2) return;
      const placed = points.map(({ x, mean, low, high }) => [this.across(this.x.at(x)), ...[mean, low, high].map((value) => this.height(value))]);
      const known = placed.filter((one) => !one.some(Number.isNaN));
      if (known.length < 2) return;
      const mean = Float32Array.from(known.flatMap(([x, y]) => [x, y]));
      const area = [...known.map(([x, , low]) => [x, low]), ...[...known].reverse().map(([x, , , high]) => [x, high])];
      bands.set(row, { trials, mean, area });
    });
    return bands;
  }

  height(value) {
    return this.heightOf(this.y.at(value));
  }

  // Of a place on the axis, from 0 to 1; what lies far outside stays near.
  heightOf(place) {
    return Number.isNaN(place) ? NaN : this.down(Math.max(-5, Math.min(6, place)));
  }

  // Instead of the trials of a configuration, their mean and the range of their values; a current trial is a line.
  shapes(order, mode) {
    if (mode === "current" || !this.bands.size) return super.shapes(order, mode);
    const within = new Set();
    const shapes = [];
    const asked = new Set(order);
    for (const { trials, mean, area } of this.bands.values()) {
      const present = trials.filter((trial) => asked.has(trial));
      for (const trial of trials) within.add(trial);
      if (!present.length) continue;
      const group = mode === "faded" ? -1 : theme.group(present[0]);
      const colour = group < 0 ? theme.faint : theme.palette[group];
      const opacity = mode === "faded" ? 0.4 : 1;
      shapes.push(new echarts.graphic.Polygon({ shape: { points: area }, style: { fill: colour, stroke: null, opacity: 0.16 * opacity } }));
      const line = new Strokes({ shape: { parts: [mean] }, style: { stroke: colour, lineWidth: 1.8, opacity, fill: null, lineJoin: "bevel" } });
      line.count = present.length;
      shapes.push(line);
    }
    return [...super.shapes(order.filter((trial) => !within.has(trial)), mode), ...shapes];
  }

  // A trial's corners in pixels; null if it has no value.
  path(trial) {
    const places = acrossOf(trial, this.axisName);
    const values = smooth(curveOf(trial, this.metric)[1], curveView.smoothing);
    let known = 0;
    for (let at = 0; at < values.length; at++) if (Number.isFinite(values[at])) known++;
    if (!known) return null;
    const path = new Float32Array(2 * known);
    let next = 0;
    this.beyond[trial] = 0;
    for (let at = 0; at < values.length; at++) {
      if (!Number.isFinite(values[at])) continue;
      const place = this.y.at(values[at]);
      if (place < 0 || place > 1) this.beyond[trial] = 1;
      path[next++] = this.across(this.x.at(places[at]));
      path[next++] = this.heightOf(place);
    }
    return path;
  }

  // What ended early is seen to end: a ring where a trial was pruned, a cross where it was lost.
  ends(trials, colour, mode) {
    const shapes = [];
    const many = trials.length > 400;
    const opacity = mode === "faded" ? 0.3 : Math.max(thin(N), 0.5);
    for (const [kind, holds] of [
      ["ring", (trial) => TRIALS.status[trial] === PRUNED],
      ["cross", (trial) => LOST.has(TRIALS.status[trial])],
      ["disc", (trial) => this.paths[trial].length === 2 && TRIALS.status[trial] !== PRUNED && !LOST.has(TRIALS.status[trial])],
    ]) {
      const xy = [];
      for (const trial of trials) if (holds(trial)) xy.push(...this.paths[trial].slice(-2));
      if (!xy.length) continue;
      const style = kind === "disc" ? { fill: colour, stroke: null } : { fill: kind === "ring" ? theme.paper : null, stroke: colour, lineWidth: 1.4 };
      shapes.push(new Dots({ shape: { xy, r: many ? 2 : 3, kind }, style: { ...style, opacity } }));
    }
    return shapes;
  }

  touches(trial, inside) {
    const path = this.paths[trial];
    if (!path) return false;
    for (let at = 0; at < path.length; at += 2) {
      if (inside(path[at], path[at + 1])) return true;
      if (at && crosses(path, at, inside)) return true;
    }
    return false;
  }

  pick(x, y) {
    let found = -1;
    let least = 14;
    for (let trial = 0; trial < N; trial++) {
      const path = this.paths[trial];
      if (!path || (selection.mask && !selection.mask[trial])) continue;
      if (x < path[0] - 8 || x > path[path.length - 2] + 8) continue;
      let at = 2;
      while (at < path.length - 2 && path[at] < x) at += 2;
      const away = Math.abs(heightAt(path, Math.min(at, path.length - 2), x) - y);
      if (away < least) [least, found] = [away, trial];
    }
    return found;
  }

  anchor(trial) {
    const path = this.paths[trial];
    return path ? [path[path.length - 2], path[path.length - 1]] : null;
  }
}

// A line with a few of its corners, for what is drawn while something is dragged.
function coarse(path) {
  const corners = path ? path.length / 2 : 0;
  const step = Math.ceil(corners / 16);
  if (step < 2) return path;
  const kept = [];
  for (let at = 0; at < corners - 1; at += step) kept.push(path[2 * at], path[2 * at + 1]);
  kept.push(path[2 * corners - 2], path[2 * corners - 1]);
  return Float32Array.from(kept);
}

// The controls above the curves of a report; those of a trial's page have none.
function openCurveControls(plot) {
  const [across, smoothing, bands] = ["curve-across", "smoothing", "bands"].map((id) => document.getElementById(id));
  fillChooser(across, ["epoch", ...Object.keys(CURVES.across)]);
  const read = () => {
    const hasRepeats = DATA.table.trials.some((trials) => trials.length > 1);
    bands.closest("label").hidden = !hasRepeats;
    curveView.across = across.selectedOptions[0].textContent;
    curveView.smoothing = Number(smoothing.value);
    curveView.bands = bands.checked && hasRepeats;
    document.getElementById("smoothed").textContent = curveView.smoothing ? curveView.smoothing.toFixed(2) : "off";
  };
  read();
  plot.readControls = read;
  for (const control of [across, smoothing, bands]) {
    control.oninput = () => {
      read();
      plot.draw();
    };
  }
}
