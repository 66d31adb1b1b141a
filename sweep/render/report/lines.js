"use strict";
// Charts in which a trial is a line, among them parallel coordinates; learning curves are in curves.js.

class LinePlot extends Plot {
  // `paths`: by trial its corners in pixels, x and y in turn, or null.
  shapes(order, mode) {
    const grouped = new Map();
    for (const trial of order) {
      if (!this.paths[trial]) continue;
      const group = mode === "faded" ? -1 : theme.group(trial);
      if (!grouped.has(group)) grouped.set(group, []);
      grouped.get(group).push(trial);
    }
    const shapes = [];
    const few = order.length <= 60;
    // Blending many lines takes twice the time of covering them; the best come last, and so lie above.
    const covering = mode === "chosen" && order.length > 300;
    const opacity = mode === "faded" ? (N > 200 ? 0.5 : 0.3) : covering ? (dragging() ? 1 : 0.4) : thin(order.length);
    const width = mode === "current" ? 3 : few ? 1.6 : 1;
    for (const [group, trials] of [...grouped].sort(([one], [other]) => one - other)) {
      const colour = group < 0 ? (N > 200 ? theme.line : theme.faint) : theme.palette[group];
      if (mode === "current") shapes.push(this.strokes(trials, theme.paper, 6, 0.9));
      const chunk = few ? 1 : CHUNK;
      for (let at = 0; at < trials.length; at += chunk) {
        shapes.push(this.strokes(trials.slice(at, at + chunk), colour, width, mode === "current" ? 1 : opacity));
      }
      if (mode !== "chosen" || !dragging()) shapes.push(...this.ends(trials, colour, mode));
    }
    return shapes;
  }

  strokes(trials, stroke, lineWidth, opacity) {
    const paths = dragging() ? this.coarse : this.paths;
    const shape = new Strokes({
      shape: { parts: trials.map((trial) => paths[trial]) },
      style: { stroke, lineWidth, opacity, fill: null, lineJoin: "bevel" },
    });
    shape.count = trials.length;
    return shape;
  }

  ends() {
    return [];
  }
}

class ParallelPlot extends LinePlot {
  constructor(box, label, fields) {
    super(box, label);
    this.fields = fields;
    this.ranges = new Map();
    this.fit();
  }

  rebind() {
    this.fields = this.fields.map((field) => this.again(field));
  }

  get isCut() {
    return this.fields.some((field) => field.isCut);
  }

  get outside() {
    const isOutside = (trial) => this.places.some((places) => places[trial] < 0 || places[trial] > 1);
    return TRIALS.trial.filter((_, trial) => isOutside(trial)).length;
  }

  // One below the other, axes need more height.
  fit() {
    this.box.style.height = this.lying ? `${80 + 66 * this.fields.length}px` : "";
  }

  resize() {
    this.fit();
    super.resize();
  }

  draw() {
    super.draw();
    if (!this.chart || !this.ranges.size) return;
    const before = this.forgetting;
    this.forgetting = true;
    for (const [at, intervals] of this.ranges) {
      this.chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: `axis${at}`, intervals });
    }
    this.forgetting = before;
  }

  get brushes() {
    return false;
  }

  tellEmpty() {}

  // On a narrow screen the axes lie one below the other.
  get lying() {
    return this.box.clientWidth < 560;
  }

  get margin() {
    return this.lying ? { left: 24, right: 24, top: 40, bottom: 26 } : { left: 60, right: 76, top: 44, bottom: 34 };
  }

  listen() {
    super.listen();
    this.chart.on("axisareaselected", (event) => {
      if (this.forgetting) return;
      const at = Number(event.parallelAxisId.replace("axis", ""));
      if (event.intervals.length) this.ranges.set(at, event.intervals);
      else this.ranges.delete(at);
      this.dragged = true;
      clearTimeout(this.resting);
      this.resting = setTimeout(() => {
        this.dragged = false;
        notify(true);
      }, 200);
      this.ranged();
    });
  }

  ranged() {
    if (!this.ranges.size) {
      select(this, null);
      return;
    }
    const mask = new Uint8Array(N).fill(1);
    for (const [at, intervals] of this.ranges) {
      const places = this.places[at];
      for (let trial = 0; trial < N; trial++) {
        if (!intervals.some(([from, to]) => places[trial] >= from && places[trial] <= to)) mask[trial] = 0;
      }
    }
    select(this, mask, false);
  }

  options() {
    const { left, right, top, bottom } = this.margin;
    const most = this.lying ? 30 : Math.max(8, Math.floor(this.chart.getWidth() / this.fields.length / 8));
    return {
      parallel: { left, right, top, bottom, layout: this.lying ? "vertical" : "horizontal", axisExpandable: false },
      parallelAxis: this.fields.map((field, at) => ({
        ...this.axis(field.scale, field.name, { most: 9 }),
        id: `axis${at}`,
        zlevel: CURRENT + 1,
        dim: at,
        realtime: true,
        splitLine: { show: false },
        nameLocation: this.lying ? "start" : "end",
        nameGap: this.lying ? 0 : 16,
        name: shortened(field.name, most),
        nameTextStyle: { color: theme.ink, fontSize: 12, fontWeight: at ? "normal" : "bold", align: this.lying ? "left" : "center", verticalAlign: this.lying ? "bottom" : undefined, padding: this.lying ? [0, 0, 5, 0] : 0, textBorderColor: theme.paper, textBorderWidth: 3 },
        axisLine: { lineStyle: { color: theme.faint, width: 1.4 } },
        axisLabel: { ...this.axis(field.scale, "").axisLabel, textBorderColor: theme.paper, textBorderWidth: 3, color: theme.ink },
        areaSelectStyle: { width: 22, color: theme.accent, borderColor: theme.accent, borderWidth: 1, opacity: 0.28 },
      })),
      // The component wants a series; the lines are shapes of ours.
      series: [{ type: "parallel", silent: true, data: [] }],
    };
  }

  place(trials = null) {
    const count = this.fields.length;
    const { x, y, width, height } = this.rect;
    const lying = this.lying; // asking the document for it takes long
    const missing = lying ? -14 / width : -20 / height;
    if (!trials) {
      this.places = this.fields.map((field) => Float64Array.from(field.values, (value) => field.scale.at(value)));
      this.paths = new Array(N).fill(null);
      this.gaps = this.places.some((places) => places.some(Number.isNaN));
    }
    for (const trial of trials ?? TRIALS.trial.keys()) {
      if (trials) this.fields.forEach((field, at) => (this.places[at][trial] = field.scale.at(field.values[trial])));
      const path = new Float32Array(2 * count);
      for (let at = 0; at < count; at++) {
        let place = this.places[at][trial];
        place = Number.isNaN(place) ? missing : Math.max(-0.02, Math.min(1.02, place));
        const along = count > 1 ? at / (count - 1) : 0.5;
        path[2 * at] = lying ? x + place * width : x + along * width;
        path[2 * at + 1] = lying ? y + along * height : y + (1 - place) * height;
      }
      this.paths[trial] = path;
    }
    this.coarse = this.paths;
  }

  clip() {
    const { x, y, width, height } = this.rect;
    return new echarts.graphic.Rect({ shape: { x: 0, y: y - 8, width: x + width + 30, height: height + 34 } });
  }

  under() {
    if (!this.gaps || this.lying) return [];
    const { x, y, height } = this.rect;
    return [new echarts.graphic.Text({ style: { x: x - 10, y: y + height + 20, text: "not set", align: "right", verticalAlign: "middle", fill: theme.faint, fontSize: 11 } })];
  }

  pick(x, y) {
    const [along, beside] = this.lying ? [y, x] : [x, y];
    const offset = this.lying ? 1 : 0;
    let found = -1;
    let least = 10;
    for (let trial = 0; trial < N; trial++) {
      if (selection.mask && !selection.mask[trial]) continue;
      const path = this.paths[trial];
      for (let at = 2; at < path.length; at += 2) {
        const [from, to] = [path[at - 2 + offset], path[at + offset]];
        if (along < from || along > to) continue;
        const [low, high] = [path[at - 1 - offset], path[at + 1 - offset]];
        const away = Math.abs(low + ((along - from) / (to - from || 1)) * (high - low) - beside);
        if (away <= least) [least, found] = [away, trial];
      }
    }
    return found;
  }

  anchor(trial) {
    return [this.paths[trial][0], this.paths[trial][1]];
  }

  forget() {
    this.ranges.clear();
    if (!this.chart) return;
    this.forgetting = true;
    this.fields.forEach((_, at) => this.chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: `axis${at}`, intervals: [] }));
    this.forgetting = false;
  }
}
