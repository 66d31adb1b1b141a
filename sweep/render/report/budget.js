"use strict";
// The best score for what was spent: as it was found, and over random orders of the same configurations.

class BudgetPlot {
  constructor(box, label, unit) {
    this.box = box;
    this.unit = unit;
    this.visible = false;
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", label);
    plots.push(this);
  }

  open() {
    if (this.chart) return;
    this.chart = echarts.init(this.box, null, { renderer: "canvas" });
    this.draw();
  }

  draw() {
    if (!this.chart) return;
    const { sweeps, unit } = this.unit;
    this.marks = sweeps.length;
    const colours = APART[theme.dark ? "dark" : "light"];
    const told = sweeps.flatMap((one) => [...one.found, ...one.low, ...one.high]);
    const [low, high] = robust(told);
    const margin = (high - low) / 20 || Math.abs(high) / 20 || 1;
    this.chart.setOption(
      {
        animation: false,
        textStyle: { fontFamily: theme.font },
        grid: { left: 62, right: 24, top: 30, bottom: 44 },
        legend: { show: SEVERAL, top: 0, textStyle: { color: theme.ink }, data: sweeps.map((one) => this.name(one)) },
        xAxis: this.axis({ name: unit === "hours" ? "hours of training" : unit, nameGap: 26, min: 0, max: Math.max(...sweeps.map((one) => one.budgets[one.budgets.length - 1])) }),
        yAxis: this.axis({ name: OBJECTIVES[0].name, nameGap: 46, min: low - margin, max: high + margin }),
        series: sweeps.flatMap((one) => this.series(one, SEVERAL ? colours[one.sweep % colours.length] : theme.accent)),
      },
      { notMerge: true },
    );
  }

  axis(more) {
    return {
      type: "value", nameLocation: "middle", nameTextStyle: { color: theme.ink, fontSize: 12 },
      axisLabel: { color: theme.faint, fontSize: 11, formatter: figure, showMinLabel: more.min === 0, showMaxLabel: false },
      splitLine: { lineStyle: { color: theme.line } }, ...more,
    };
  }

  name(one) {
    return shortened(DATA.sweeps[one.sweep].name, 40);
  }

  series(one, colour) {
    const points = (values) => one.budgets.map((budget, at) => [budget, values[at] ?? "-"]);
    const line = { type: "line", symbol: "none", silent: true, clip: true, name: this.name(one), itemStyle: { color: colour } };
    const band = one.low.map((low, at) => [one.budgets[at], low, one.high[at]]).filter(([, low, high]) => low !== null && high !== null);
    return [
      { type: "custom", silent: true, clip: true, name: this.name(one), itemStyle: { color: colour }, data: [band.flat()], renderItem: (_, api) => area(band, api, colour) },
      { ...line, data: points(one.expected), lineStyle: { color: colour, type: "dashed", width: 1.5 } },
      { ...line, data: points(one.found), step: "end", lineStyle: { color: colour, width: 2 } },
    ];
  }

  renew() {
    this.unit = DATA.budgets.find((one) => one.unit === this.unit.unit) ?? DATA.budgets[0];
    this.draw();
  }

  refresh() {}

  grow() {}

  paint() {}

  close() {
    this.chart?.dispose();
    this.chart = null;
  }

  resize() {
    this.chart?.resize();
    this.draw();
  }
}

function area(band, api, colour) {
  const upper = band.map(([x, , high]) => api.coord([x, high]));
  const lower = band.map(([x, low]) => api.coord([x, low])).reverse();
  return { type: "polygon", shape: { points: [...upper, ...lower] }, style: { fill: colour, opacity: 0.16 } };
}

function openBudget() {
  if (!box("budget")) return;
  const units = DATA.budgets.map((one) => one.unit);
  const chooser = box("budget-unit");
  fillChooser(chooser, units);
  const plot = new BudgetPlot(box("budget"), `The best ${OBJECTIVES[0].name} found, by ${units.join(" or ")} of training`, DATA.budgets[chooser.value]);
  chooser.onchange = () => {
    plot.unit = DATA.budgets[chooser.value];
    plot.draw();
  };
}
