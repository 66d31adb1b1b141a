"use strict";
// Charts in which a trial is a point: by parameter, by two parameters, by two objectives, by the order of trials.

class PointPlot extends Plot {
  // `x` and `y`: {name, scale, values} by trial.
  constructor(box, label, x, y) {
    super(box, label);
    this.across_ = x;
    this.down_ = y;
  }

  rebind() {
    this.across_ = this.again(this.across_);
    this.down_ = this.again(this.down_);
  }

  options() {
    this.x = this.across_.scale;
    this.y = this.down_.scale;
    this.xName = this.across_.name;
    return super.options();
  }

  // Points of choices lie a little beside each other; lost trials at the edge of what is worst.
  place() {
    this.at = new Float32Array(2 * N);
    this.beyond = new Int8Array(N); // -1 for trials below the axis, 1 for those above it
    const worst = this.down_.goal === "minimize" ? 1 : 0;
    for (let trial = 0; trial < N; trial++) {
      let x = this.x.at(this.across_.values[trial]);
      let y = this.y.at(this.down_.values[trial]);
      if (this.x.labels) x += this.jitter(trial) / this.x.labels.length;
      else if (this.across_.few && N > 40) x += 0.06 * this.jitter(trial);
      if (this.y.labels) y += this.jitter(trial + 7) / this.y.labels.length;
      if (this.down_.goal) this.beyond[trial] = y < 0 ? -1 : Number(y > 1);
      if (this.across_.goal && (x < 0 || x > 1)) {
        this.beyond[trial] ||= x < 0 ? -1 : 1;
        x = Math.max(0, Math.min(1, x));
      }
      if (Number.isNaN(y) && LOST.has(TRIALS.status[trial]) && this.down_.goal) y = worst;
      const known = !Number.isNaN(x) && !Number.isNaN(y);
      this.at[2 * trial] = known ? this.across(x) : NaN;
      this.at[2 * trial + 1] = known ? this.down(this.down_.goal ? Math.max(0, Math.min(1, y)) : y) : NaN;
    }
  }

  get isCut() {
    return Boolean(this.across_.isCut || this.down_.isCut);
  }

  get outside() {
    return this.beyond.reduce((sum, side, trial) => sum + (side !== 0 && !Number.isNaN(this.at[2 * trial])), 0);
  }

  // A mark by the status, or for what lies outside of the axis an arrow to where it is.
  kindOf(trial) {
    const status = TRIALS.status[trial];
    if (LOST.has(status)) return "cross";
    if (this.beyond[trial]) return this.beyond[trial] < 0 ? "below" : "above";
    if (status === PRUNED || OPEN.has(status)) return "ring";
    return N > 3000 ? "box" : "disc";
  }

  jitter(trial) {
    return (((trial * 0.618034) % 1) - 0.5) * 0.5;
  }

  shapes(order, mode) {
    const grouped = new Map();
    for (const trial of order) {
      if (Number.isNaN(this.at[2 * trial])) continue;
      const key = `${this.kindOf(trial)} ${mode === "faded" ? -1 : theme.group(trial)}`;
      if (!grouped.has(key)) grouped.set(key, []);
      grouped.get(key).push(this.at[2 * trial], this.at[2 * trial + 1]);
    }
    const r = mode === "current" ? 6 : N > 3000 ? 1.6 : N > 400 ? 2.6 : 3.8;
    const opacity = mode === "faded" ? 0.25 : mode === "plain" ? (N > 400 ? 0.7 : 0.85) : 1;
    const shapes = [];
    for (const [key, xy] of grouped) {
      const [kind, group] = key.split(" ");
      const colour = group < 0 ? theme.faint : theme.palette[group];
      const filled = kind !== "ring" && kind !== "cross";
      const outline = mode === "current" ? { stroke: theme.ink, lineWidth: 2 } : { stroke: null };
      const style = filled ? { fill: colour, ...outline } : { fill: null, stroke: mode === "current" ? theme.ink : colour, lineWidth: mode === "current" ? 2.4 : 1.4 };
      const shape = new Dots({ shape: { xy, r, kind }, style: { ...style, opacity } });
      shape.count = xy.length / 2;
      shapes.push(shape);
    }
    return shapes;
  }

  touches(trial, inside) {
    return inside(this.at[2 * trial], this.at[2 * trial + 1]);
  }

  pick(x, y) {
    let found = -1;
    let least = 12 * 12;
    for (let trial = 0; trial < N; trial++) {
      const [dx, dy] = [this.at[2 * trial] - x, this.at[2 * trial + 1] - y];
      const away = dx * dx + dy * dy;
      if (away < least) [least, found] = [away, trial];
    }
    return found;
  }

  anchor(trial) {
    return Number.isNaN(this.at[2 * trial]) ? null : [this.at[2 * trial], this.at[2 * trial + 1]];
  }

  step(points, stroke) {
    return new Strokes({ shape: { parts: [Float32Array.from(points)] }, style: { stroke, lineWidth: 1.6, fill: null, opacity: 0.9 } });
  }
}

// The objective by the order in which trials were started, with the best so far.
class HistoryPlot extends PointPlot {
  constructor(box, label, objective) {
    super(box, label, HistoryPlot.numbers(), objective);
  }

  static numbers() {
    const counts = DATA.sweeps.map(() => 0);
    const values = TRIALS.sweep.map((sweep) => counts[sweep]++);
    const scale = numberScale(0, Math.max(...counts, 2) - 1, false, 0.03, (value) => (Number.isInteger(value) ? inThousands(value) : ""));
    return { name: "trials in the order of their start", scale, values };
  }

  rebind() {
    this.across_ = HistoryPlot.numbers();
    this.down_ = this.again(this.down_);
  }

  get order() {
    return this.across_.values;
  }

  under() {
    const better = this.down_.goal === "minimize" ? (a, b) => a < b : (a, b) => a > b;
    return DATA.sweeps.map((_, sweep) => {
      const points = [];
      let best = null;
      for (let trial = 0; trial < N; trial++) {
        const value = this.down_.values[trial];
        if (TRIALS.sweep[trial] !== sweep || value === null || STATUSES[TRIALS.status[trial]] !== "completed") continue;
        const x = this.across(this.x.at(this.order[trial]));
        if (best !== null && better(value, best)) points.push(x, this.down(this.y.at(best)));
        if (best === null || better(value, best)) {
          best = value;
          points.push(x, this.down(this.y.at(best)));
        }
      }
      const last = DATA.sweeps[sweep].trials - 1;
      if (best !== null) points.push(this.across(this.x.at(last)), this.down(this.y.at(best)));
      return this.step(points, SEVERAL ? APART[theme.dark ? "dark" : "light"][sweep % 8] : theme.ink);
    });
  }
}

class ParetoPlot extends PointPlot {
  under() {
    const sign = [this.across_, this.down_].map((field) => (field.goal === "minimize" ? 1 : -1));
    const known = [];
    for (let trial = 0; trial < N; trial++) {
      if (STATUSES[TRIALS.status[trial]] === "completed" && !Number.isNaN(this.at[2 * trial])) known.push(trial);
    }
    const loss = (trial, at) => sign[at] * [this.across_, this.down_][at].values[trial];
    known.sort((one, other) => loss(one, 0) - loss(other, 0) || loss(one, 1) - loss(other, 1));
    const points = [];
    let least = Infinity;
    for (const trial of known) {
      if (loss(trial, 1) >= least) continue;
      if (points.length) points.push(this.at[2 * trial], points[points.length - 1]);
      least = loss(trial, 1);
      points.push(this.at[2 * trial], this.at[2 * trial + 1]);
    }
    return [this.step(points, theme.ink)];
  }
}

const CELLS = 36;
const LEAST_PLACES = 8; // places of trials from which a surface is drawn
const WIDEST = 0.14; // of an axis, beyond which a trial tells nothing

// Two parameters, and the objective between the trials: a mean of those near by, weighted by their distance. Pruned
// trials count with their last score, which is why they were stopped.
class ContourPlot extends PointPlot {
  constructor(box, label, x, y, objective) {
    super(box, label, x, y);
    this.objective = objective;
  }

  rebind() {
    super.rebind();
    this.objective = this.again(this.objective);
  }

  get margin() {
    return { ...super.margin, left: 100 };
  }

  options() {
    const found = super.options();
    found.yAxis = this.axis(this.y, this.down_.name, { most: 9, nameLocation: "middle", nameGap: 76 });
    return found;
  }

  under() {
    const known = [];
    for (let trial = 0; trial < N; trial++) {
      const value = this.objective.values[trial];
      const counts = STATUSES[TRIALS.status[trial]] === "completed" || TRIALS.status[trial] === PRUNED;
      const place = counts && value !== null ? this.objective.scale.at(value) : NaN;
      const [x, y] = [this.x.at(this.across_.values[trial]), this.y.at(this.down_.values[trial])];
      if (!Number.isNaN(place + x + y)) known.push([x, y, Math.max(0, Math.min(1, place))]);
    }
    const few = known.length > 3000 ? known.filter((_, at) => at % Math.ceil(known.length / 3000) === 0) : known;
    const places = new Set(few.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`)).size;
    if (places < LEAST_PLACES) return [];
    const wide = Math.max(0.05, Math.min(WIDEST, 0.8 / Math.sqrt(places)));
    const [columns, rows] = [this.x, this.y].map((scale) => scale.labels?.length ?? CELLS);
    const cells = [];
    for (let column = 0; column < columns; column++) {
      for (let row = 0; row < rows; row++) {
        const place = smoothed(few, (column + 0.5) / columns, (row + 0.5) / rows, wide);
        if (place !== null) cells.push([column, row, place]);
      }
    }
    return this.bands(cells, columns, rows);
  }

  bands(cells, columns, rows) {
    const [low, high] = extremes(cells.map((cell) => cell[2]));
    const steps = STEPS[theme.dark ? "dark" : "light"];
    const falling = this.objective.goal === "minimize";
    const boxes = steps.map(() => []);
    for (const [column, row, place] of cells) {
      const share = high > low ? (place - low) / (high - low) : 0.5;
      const step = Math.min(steps.length - 1, Math.floor((falling ? 1 - share : share) * steps.length));
      const [x, y] = [this.across(column / columns), this.down((row + 1) / rows)];
      boxes[step].push([x, y, this.rect.width / columns + 0.5, this.rect.height / rows + 0.5]);
    }
    return boxes.map((part, at) => new Rects({ shape: { boxes: part }, style: { fill: steps[at], opacity: 0.55, stroke: null } }));
  }

  shapes(order, mode) {
    const shapes = super.shapes(order, mode);
    for (const shape of shapes) {
      if (mode !== "current" && shape.style.fill) shape.setStyle({ stroke: theme.paper, lineWidth: N > 3000 ? 0 : 0.8 });
    }
    return shapes;
  }
}

function smoothed(known, x, y, wide) {
  let [weights, sum, nearest] = [0, 0, Infinity];
  for (const [px, py, value] of known) {
    const away = ((px - x) ** 2 + (py - y) ** 2) / (wide * wide);
    if (away < nearest) nearest = away;
    const weight = Math.exp(-away / 2);
    weights += weight;
    sum += weight * value;
  }
  return nearest < 1 && weights > 0 ? sum / weights : null;
}
