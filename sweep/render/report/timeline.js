"use strict";
// Which trial ran where and when; and, not a chart of trials, what each parameter matters.

const LANE = 22; // pixels

class TimelinePlot extends Plot {
  constructor(box, label) {
    super(box, label);
    this.rebind();
  }

  rebind() {
    const { lanes, spans, ends } = DATA.timeline;
    this.box.style.height = `${Math.min(Math.max(lanes.length * LANE, 60), 900) + 58}px`;
    this.chart?.resize();
    this.spans = spans;
    this.last = Math.max(1e-3, ...ends);
  }

  grow() {} // by time, not by epochs; lanes are assigned by the document

  // On a live page: the trials that run are drawn up to now, in seconds since the start.
  growTo(now) {
    const { open, spans, ends } = DATA.timeline;
    if (!open.length) return;
    for (const at of open) spans.end[at] = Math.max(spans.end[at], now);
    ends[0] = Math.max(ends[0], now);
    this.last = Math.max(this.last, now);
    this.outdated = true;
    this.refresh();
  }

  get margin() {
    const longest = Math.max(...DATA.timeline.lanes.map((name) => Math.min([...name].length, 22)));
    const narrow = this.box.clientWidth < 560;
    return { left: Math.min(24 + 6.4 * longest, narrow ? 90 : 180), right: 18, top: 10, bottom: 44 };
  }

  options() {
    const unit = this.last < 180 ? [1, "seconds"] : this.last < 10800 ? [60, "minutes"] : this.last < 259200 ? [3600, "hours"] : [86400, "days"];
    this.unit = unit[0];
    this.x = numberScale(0, this.last / unit[0], false, 0.01);
    this.x.ticks = this.x.ticks.filter((tick) => tick.at >= -1e-9);
    this.y = choiceScale([...DATA.timeline.lanes].reverse());
    this.xName = `${unit[1]} since the start${SEVERAL ? " of each sweep" : ""}`;
    const found = super.options();
    found.yAxis.axisLabel.width = this.margin.left - 16;
    found.yAxis.axisLabel.overflow = "truncate";
    return found;
  }

  axis(field, name, more) {
    return super.axis(field, name, { ...more, most: 22 });
  }

  place() {
    const count = DATA.timeline.lanes.length;
    const tall = Math.max(2, Math.min((this.rect.height / count) * 0.72, 18));
    this.boxes = Array.from({ length: N }, () => []);
    this.spans.row.forEach((trial, at) => {
      const from = this.across(this.x.at(this.spans.begin[at] / this.unit));
      const to = this.across(this.x.at(this.spans.end[at] / this.unit));
      const middle = this.rect.y + ((this.spans.lane[at] + 0.5) / count) * this.rect.height;
      this.boxes[trial].push([from, middle - tall / 2, Math.max(to - from - 0.6, 0.8), tall]);
    });
  }

  under() {
    const tops = DATA.timeline.pauses.map(([begin, end]) => {
      const from = this.across(this.x.at(begin / this.unit));
      return [from, this.rect.y, this.across(this.x.at(end / this.unit)) - from, this.rect.height];
    });
    return tops.length ? [new Rects({ shape: { boxes: tops }, style: { fill: theme.faint, opacity: 0.18, stroke: null } })] : [];
  }

  shapes(order, mode) {
    const grouped = new Map();
    for (const trial of order) {
      if (!this.boxes[trial].length) continue;
      const group = mode === "faded" ? -1 : theme.group(trial);
      if (!grouped.has(group)) grouped.set(group, { boxes: [], count: 0 });
      grouped.get(group).boxes.push(...this.boxes[trial]);
      grouped.get(group).count++;
    }
    return [...grouped].map(([group, { boxes, count }]) => {
      const outline = mode === "current" ? { stroke: theme.ink, lineWidth: 2.5 } : { stroke: null };
      const fill = group < 0 ? theme.faint : theme.palette[group];
      const shape = new Rects({ shape: { boxes }, style: { fill, opacity: mode === "faded" ? 0.3 : 1, ...outline } });
      shape.count = count;
      return shape;
    });
  }

  touches(trial, inside) {
    return this.boxes[trial].some(([x, y, width, height]) => {
      const middle = y + height / 2;
      return [0, 0.25, 0.5, 0.75, 1].some((share) => inside(x + share * width, middle));
    });
  }

  pick(x, y) {
    return this.boxes.findIndex((boxes) =>
      boxes.some(([left, top, width, height]) => x >= left - 1 && x <= left + width + 1 && y >= top - 2 && y <= top + height + 2),
    );
  }

  anchor(trial) {
    const box = this.boxes[trial][0];
    return box ? [box[0] + box[2] / 2, box[1]] : null;
  }
}

// Bars of shares with the range of the resamples.
class ImportancePlot {
  // `at`: of which objective.
  constructor(box, label, at) {
    this.box = box;
    this.at = at;
    this.visible = false;
    this.rebind();
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", label);
    plots.push(this);
  }

  rebind() {
    const { rows } = DATA.importance[this.at];
    this.rows = [...rows].reverse();
    this.box.style.height = `${rows.length * 30 + 52}px`;
  }

  renew() {
    this.rebind();
    this.resize();
  }

  refresh() {}

  grow() {}

  close() {
    this.chart?.dispose();
    this.chart = null;
  }

  open() {
    if (this.chart) return;
    this.chart = echarts.init(this.box, null, { renderer: "canvas" });
    this.draw();
  }

  draw() {
    if (!this.chart) return;
    const { rows } = this;
    this.marks = rows.length;
    const longest = Math.max(...rows.map((row) => Math.min([...row.param].length, 24)));
    this.chart.setOption(
      {
        animation: false,
        textStyle: { fontFamily: theme.font },
        grid: { left: Math.min(20 + 6.6 * longest, 0.4 * this.box.clientWidth), right: 24, top: 4, bottom: 44 },
        xAxis: {
          type: "value", min: 0, max: 1, name: "share of the importance", nameLocation: "middle", nameGap: 26,
          nameTextStyle: { color: theme.ink, fontSize: 12 },
          axisLabel: { color: theme.faint, fontSize: 11, formatter: (value) => `${Math.round(100 * value)} %` },
          splitLine: { lineStyle: { color: theme.line } },
        },
        yAxis: {
          type: "category", data: rows.map((row) => row.param),
          axisLabel: { color: theme.ink, fontSize: 12, formatter: (name) => shortened(name, 24) },
          axisTick: { show: false }, axisLine: { lineStyle: { color: theme.faint } },
        },
        series: [
          { type: "bar", data: rows.map((row) => row.share), barWidth: 14, itemStyle: { color: theme.accent, opacity: 0.75 }, silent: true },
          { type: "custom", silent: true, data: rows.map((row, at) => [row.low, row.high, at]), encode: { x: [0, 1], y: 2 }, renderItem: whisker },
        ],
      },
      { notMerge: true },
    );
  }

  paint() {}

  resize() {
    this.chart?.resize();
    this.draw();
  }
}

function whisker(_, api) {
  const [from, y] = api.coord([api.value(0), api.value(2)]);
  const [to] = api.coord([api.value(1), api.value(2)]);
  const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: theme.ink, lineWidth: 1.5 } });
  return { type: "group", children: [line(from, y, to, y), line(from, y - 5, from, y + 5), line(to, y - 5, to, y + 5)] };
}
