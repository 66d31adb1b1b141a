"use strict";
// A chart of trials. ECharts lays out axes, boxes and ranges; the marks of thousands of trials are shapes of its
// drawing layer, many in one path, on canvases of their own: all, and above them those that grow, the selected and the current ones.

const ALL = 1;
const GROWN = 2; // what has changed since all were drawn, in a large sweep that runs
const CHOSEN = 3;
const CURRENT = 4;
const LARGE = 1000; // trials from which only those that have changed are drawn again
const CHUNK = 40; // lines in a path of a pixel's width; wider ones are a path each, for outlines of long paths are slow
const BUSY = 2000; // lines drawn while something is being dragged

const Strokes = echarts.graphic.extendShape({
  type: "strokes",
  shape: { parts: [] },
  buildPath(ctx, shape) {
    for (const xy of shape.parts) {
      let down = false;
      for (let at = 0; at < xy.length; at += 2) {
        if (Number.isNaN(xy[at + 1])) down = false;
        else if (down) ctx.lineTo(xy[at], xy[at + 1]);
        else {
          ctx.moveTo(xy[at], xy[at + 1]);
          down = true;
        }
      }
    }
  },
});
const Dots = echarts.graphic.extendShape({
  type: "dots",
  shape: { xy: [], r: 3, kind: "disc" },
  buildPath(ctx, { xy, r, kind }) {
    for (let at = 0; at < xy.length; at += 2) {
      const [x, y] = [xy[at], xy[at + 1]];
      if (kind === "cross") {
        ctx.moveTo(x - r, y - r);
        ctx.lineTo(x + r, y + r);
        ctx.moveTo(x + r, y - r);
        ctx.lineTo(x - r, y + r);
      } else if (kind === "below" || kind === "above") {
        const base = kind === "below" ? y - 2 * r : y + 2 * r;
        ctx.moveTo(x - r, base);
        ctx.lineTo(x + r, base);
        ctx.lineTo(x, y);
        ctx.closePath();
      } else if (kind === "box") {
        ctx.rect(x - r, y - r, 2 * r, 2 * r);
      } else {
        ctx.moveTo(x + r, y);
        ctx.arc(x, y, r, 0, 2 * Math.PI);
      }
    }
  },
});
const Rects = echarts.graphic.extendShape({
  type: "rects",
  shape: { boxes: [] },
  buildPath(ctx, { boxes }) {
    for (const [x, y, width, height] of boxes) ctx.rect(x, y, width, height);
  },
});

const plots = [];

class Plot {
  // `box`: the element; `label`: its text alternative.
  constructor(box, label) {
    this.box = box;
    this.chart = null;
    this.rect = { x: 0, y: 0, width: 0, height: 0 };
    this.visible = false;
    this.stale = true;
    this.outdated = false; // drawn from a document that was replaced
    this.grown = new Set(); // trials that have changed since
    this.marks = 0;
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-roledescription", "chart");
    box.setAttribute("aria-label", label);
    plots.push(this);
  }

  get margin() {
    return { left: 62, right: 18, top: 14, bottom: 44 };
  }

  open() {
    if (this.chart) return;
    this.chart = echarts.init(this.box, null, { renderer: "canvas" });
    this.layers = Object.fromEntries([ALL, GROWN, CHOSEN, CURRENT].map((zlevel) => [zlevel, this.layer(zlevel)]));
    this.listen();
    this.draw();
  }

  layer(zlevel) {
    const group = new echarts.graphic.Group({ silent: true });
    this.chart.getZr().add(group);
    group.zlevel = zlevel;
    return group;
  }

  listen() {
    const pointer = this.chart.getZr();
    pointer.on("mousemove", (event) => this.hover(event.offsetX, event.offsetY, event.event));
    pointer.on("globalout", () => this.leave());
    pointer.on("click", (event) => {
      if (this.dragged) return;
      clicked(this.pick(event.offsetX, event.offsetY), event.event);
    });
    this.chart.on("brush", (event) => {
      if (!this.forgetting) this.brushed(event.areas, false);
    });
    this.chart.on("brushEnd", (event) => {
      if (!this.forgetting) this.brushed(event.areas, true);
      this.dragged = event.areas.length > 0;
      setTimeout(() => (this.dragged = false), 0);
    });
  }

  // All of it: axes and marks, after the size, the colours or what is shown has changed.
  draw() {
    if (!this.chart) return;
    const { left, right, top, bottom } = this.margin;
    const [width, height] = [this.chart.getWidth(), this.chart.getHeight()];
    this.rect = { x: left, y: top, width: Math.max(width - left - right, 1), height: Math.max(height - top - bottom, 1) };
    this.chart.setOption({ animation: false, textStyle: { fontFamily: theme.font }, ...this.options() }, { notMerge: true });
    this.setMode();
    this.grown.clear();
    this.fill(GROWN, []);
    this.outdated = false;
    this.place();
    this.tellOutside();
    this.base();
    this.tellEmpty();
    this.stale = true;
    this.current = undefined;
    this.paint(true);
  }

  // After `readData`: takes the same fields of the new document. Is drawn when it is in view.
  renew() {
    this.rebind();
    this.outdated = true;
    this.refresh();
  }

  rebind() {}

  refresh() {
    if (!this.chart || !this.visible || !this.outdated) return;
    this.forgetting = true; // drawing takes the box away, which is no wish of the reader
    this.draw();
    this.forgetting = false;
  }

  // Draws trials whose columns have changed.
  grow(trials) {
    if (N < LARGE || !this.chart || !this.visible || this.outdated) {
      this.outdated = true;
      this.refresh();
      return;
    }
    for (const trial of trials) this.grown.add(trial);
    this.place(trials);
    this.tellOutside();
    this.fill(GROWN, this.shapes([...this.grown], this.faded ? "faded" : "plain"));
  }

  close() {
    this.chart?.dispose();
    this.chart = null;
    this.outsideLine?.remove();
  }

  // The number of trials that lie outside of the axes, and whether axes with all values would be others.
  get outside() {
    return 0;
  }

  get isCut() {
    return false;
  }

  tellWhatLiesOutside(count) {
    return `${inThousands(count)} ${count === 1 ? "trial lies" : "trials lie"} outside of this range.`;
  }

  // Axes of no values would be invented.
  tellEmpty() {
    if (this.marks) return;
    const text = CURVES.epochs.length || CURVES.tails.size ? "Nothing to draw yet." : "No epoch has come yet.";
    const title = { text, left: "center", top: "middle", textStyle: { color: theme.faint, fontSize: 13, fontWeight: "normal" } };
    this.chart.setOption({ title, xAxis: { show: false }, yAxis: { show: false } });
  }

  // Below the chart: that trials lie outside of it, and a button that shows all.
  tellOutside() {
    this.outsideLine?.remove();
    this.outsideLine = null;
    if (!this.isCut) return;
    const { outside } = this;
    if (!outside && !ranges.whole) return; // what was cut off is less than the margin of the axis
    const line = document.createElement("p");
    line.className = "note outside";
    line.append(ranges.whole ? "All values are shown. " : `${this.tellWhatLiesOutside(outside)} `);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = ranges.whole ? "Show the usual range" : "Show all values";
    button.addEventListener("click", () => {
      ranges.whole = !ranges.whole;
      ranges.changed();
      this.outsideLine?.querySelector("button").focus();
    });
    line.append(button);
    this.box.after(line);
    this.outsideLine = line;
  }

  setMode() {
    const brush = modes.brush;
    if (!this.brushes) return;
    this.chart.dispatchAction({
      type: "takeGlobalCursor",
      key: "brush",
      brushOption: { brushType: brush === "none" ? false : brush, brushMode: "single" },
    });
  }

  get brushes() {
    return true;
  }

  // An axis from 0 to 1 with our own ticks.
  axis(field, name, more = {}) {
    const ticks = field.ticks;
    const labels = new Map(ticks.map((tick) => [tick.at.toFixed(9), tick.label]));
    const places = ticks.map((tick) => tick.at);
    return {
      type: "value",
      min: 0,
      max: 1,
      name: shortened(name, 40),
      nameTextStyle: { color: theme.ink, fontSize: 12 },
      axisLine: { show: true, onZero: false, lineStyle: { color: theme.faint } },
      axisTick: { show: true, customValues: places, lineStyle: { color: theme.faint } },
      axisLabel: {
        color: theme.faint,
        fontSize: 11,
        customValues: places,
        hideOverlap: true,
        formatter: (value) => shortened(labels.get(value.toFixed(9)) ?? "", more.most ?? 12),
      },
      splitLine: { show: !field.labels, customValues: places, lineStyle: { color: theme.line } },
      ...more,
    };
  }

  options() {
    const { left, right, top, bottom } = this.margin;
    const brushable = this.brushes
      ? {
          toolbox: { show: false },
          brush: {
            xAxisIndex: 0,
            brushStyle: { color: theme.accent + "22", borderColor: theme.accent, borderWidth: 1 },
            throttleType: "fixRate",
            throttleDelay: 0,
          },
        }
      : {};
    return {
      grid: { left, right, top, bottom },
      xAxis: this.axis(this.x, this.xName, { nameLocation: "middle", nameGap: 28 }),
      yAxis: this.axis(this.y, "", { most: 9 }),
      series: [],
      ...brushable,
    };
  }

  across(place) {
    return this.rect.x + place * this.rect.width;
  }

  down(place) {
    return this.rect.y + (1 - place) * this.rect.height;
  }

  clip() {
    const { x, y, width, height } = this.rect;
    return new echarts.graphic.Rect({ shape: { x: x - 6, y: y - 6, width: width + 12, height: height + 12 } });
  }

  // Replaces the shapes of a layer.
  fill(zlevel, shapes) {
    const group = this.layers[zlevel];
    group.removeAll();
    group.setClipPath(this.clip());
    for (const shape of shapes) {
      shape.zlevel = zlevel;
      shape.silent = true;
      group.add(shape);
    }
  }

  base() {
    this.faded = Boolean(selection.mask);
    const shapes = this.shapes(ORDER, this.faded ? "faded" : "plain");
    this.marks = shapes.reduce((sum, shape) => sum + (shape.count ?? 0), 0);
    this.fill(ALL, [...this.under(), ...shapes]);
  }

  // The field of the same name and kind in the present document.
  again(field) {
    const fields = field.goal ? OBJECTIVES : PARAMS;
    return fields.find((one) => one.name === field.name) ?? field;
  }

  // Only what follows the selection; `settled`: nothing is being dragged.
  paint(settled) {
    if (!this.chart) return;
    if (Boolean(selection.mask) !== this.faded) this.base();
    const partly = !settled; // as few as can be followed, without blending
    if (this.stale || this.painted !== selection.version || this.partly !== partly) {
      const shapes = this.shapes(partly ? selection.order.slice(-BUSY) : selection.order, "chosen");
      this.chosen = shapes.reduce((sum, shape) => sum + (shape.count ?? 0), 0);
      this.fill(CHOSEN, shapes);
      [this.painted, this.partly, this.stale] = [selection.version, partly, false];
    }
    if (this.current !== selection.current || this.currentAt !== selection.version) {
      this.fill(CURRENT, selection.current >= 0 ? this.shapes([selection.current], "current") : []);
      [this.current, this.currentAt] = [selection.current, selection.version];
    }
  }

  under() {
    return [];
  }

  forget() {
    if (!this.chart) return;
    this.forgetting = true;
    this.chart.dispatchAction({ type: "brush", areas: [] });
    this.forgetting = false;
  }

  brushed(areas, settled) {
    if (!areas.length) {
      if (selection.parts.has(this)) select(this, null);
      return;
    }
    const inside = areas[0].brushType === "polygon" ? within(areas[0].range) : boxed(areas[0].range);
    const mask = new Uint8Array(N);
    for (let trial = 0; trial < N; trial++) mask[trial] = this.touches(trial, inside) ? 1 : 0;
    select(this, mask, settled);
  }

  hover(x, y, event) {
    if (event.buttons) return; // something is dragged
    const trial = this.pick(x, y);
    setCurrent(trial);
    if (trial >= 0) showTip(trial, event.clientX, event.clientY);
    else hideTip();
  }

  leave() {
    setCurrent(-1);
    hideTip();
  }

  resize() {
    if (!this.chart) return;
    this.chart.resize();
    this.draw();
  }
}

function boxed([[left, right], [top, bottom]]) {
  return (x, y) => x >= left && x <= right && y >= top && y <= bottom;
}

function within(corners) {
  return (x, y) => {
    let inside = false;
    for (let at = 0, last = corners.length - 1; at < corners.length; last = at++) {
      const [[ax, ay], [bx, by]] = [corners[at], corners[last]];
      if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) inside = !inside;
    }
    return inside;
  };
}

// Opacity of one line among so many.
function thin(count) {
  return Math.max(0.1, Math.min(0.9, 6 / Math.sqrt(Math.max(count, 1))));
}
