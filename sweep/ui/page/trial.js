"use strict";
// One trial, and perhaps a second one beside it.

const SWEEP = document.body.dataset.sweep;
const TRIAL = Number(document.body.dataset.trial);
const BESIDE = new URLSearchParams(location.search).get("beside");
const QUERY = BESIDE && /^\d+$/.test(BESIDE) ? `?beside=${BESIDE}` : "";

modes.brush = "none"; // nothing to select here
ranges.changed = paintCurves;
const page = { known: null, first: null, opened: false, waiting: 0 };

find("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  keepTheme();
  paintCurves();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintCurves);
find("beside").addEventListener("submit", (event) => {
  event.preventDefault();
  const other = find("beside-number").value;
  location.assign(`${ROOT}${encodeURIComponent(SWEEP)}/${TRIAL}${other === "" ? "" : `?beside=${other}`}`);
});
if (QUERY) {
  find("beside-number").value = BESIDE;
  find("alone").hidden = false;
  find("alone").href = `${ROOT}${encodeURIComponent(SWEEP)}/${TRIAL}`;
}
openStream(`${ROOT}${encodeURIComponent(SWEEP)}/-/events`, {
  facts: (data) => {
    const facts = JSON.parse(data);
    acts.state = facts.state;
    acts.counts = facts.counts;
    showActs();
    takeSoon();
  },
  log: (data) => {
    const numbers = [TRIAL, Number(BESIDE)];
    if (numbers.some((number) => data.includes(`"trial":${number},`))) takeSoon();
  },
});
acts.ended = takeTrial;
openActs({ sweep: SWEEP, trial: TRIAL })
  .then(() => page.first && showMarks(page.first))
  .catch((error) => hear(error.message));
takeTrial();

// At most once in two seconds: the tables of the whole sweep are read for it.
function takeSoon() {
  if (page.waiting) return;
  page.waiting = setTimeout(async () => {
    await takeTrial();
    page.waiting = 0;
  }, 2000);
}

async function takeTrial() {
  try {
    const content = await getJson(`${ROOT}${encodeURIComponent(SWEEP)}/${TRIAL}.json${QUERY}`);
    const text = JSON.stringify(content);
    if (text !== page.known) showTrial(content);
    page.known = text;
  } catch (error) {
    page.known = null; // the error replaces the content, which must be shown again even if it is the same
    find("trial").replaceChildren(make("p", { class: "wrong", role: "alert" }, error.message));
    find("trial").removeAttribute("aria-busy");
  }
}

function showTrial(content) {
  const { trials } = content.trial;
  const [first] = trials;
  if (first.status !== acts.trial && acts.trial) hear(`trial ${TRIAL} is ${first.outcome}`);
  acts.trial = first.status;
  acts.mark = { starred: first.starred, note: first.note };
  page.first = first;
  showActs();
  showMarks(first);
  find("beside-number").max = String(content.trial.known - 1);
  find("state").replaceChildren(statusMark(first.status, first.outcome));
  const scores = content.data.objectives.filter((one) => one.values[0] !== null);
  tell(find("score"), scores.map((one) => `${one.name} ${inScore(one.values[0])}`).join(", "));
  tell(find("reason"), [first.reason, counted(first.epochs, "epoch"), inTime(first.duration_s)].filter(Boolean).join(" · "));
  const open = [...find("trial").querySelectorAll("details")].map((one) => one.open);
  find("trial").replaceChildren(
    ...[
      factTable("Parameters", trials, (one) => one.params, "No parameters."),
      factTable("Scores", trials, scoresOf, "No epoch has been reported."),
      timeTable(trials),
      ...trials.map(errorPart),
      ...trials.map(outputPart),
      ...trials.map(eventPart),
      factTable("Where and how", trials, (one) => one.facts, ""),
      ...trials.map(commandPart),
    ].filter(Boolean),
  );
  [...find("trial").querySelectorAll("details")].forEach((one, at) => (one.open = open[at] ?? one.open));
  find("trial").removeAttribute("aria-busy");
  drawCurves(content.data, trials);
  showDrawn(content.trial.drawn_epochs);
  document.documentElement.dataset.ready = "yes";
}

// The star and the note that a person has put on it.
function showMarks(trial) {
  const done = { sweep: SWEEP, trial: trial.trial };
  find("star").hidden = !trial.starred;
  find("star").replaceChildren(make("span", { class: "starred" }, "★ starred "), placedButton("remove_star", done, acts.mark, "remove") ?? "");
  find("note").hidden = !trial.note;
  find("note").replaceChildren(make("span", { class: "note" }, "note"), ...noteParts(trial.note, done, acts.mark).filter(Boolean));
}

function scoresOf(trial) {
  const found = {};
  for (const [name, value] of Object.entries(trial.metrics)) {
    found[`${name}, last`] = inScore(value);
    if (name in trial.best) found[`${name}, best`] = inScore(trial.best[name]);
  }
  for (const [name, value] of Object.entries(trial.tested)) found[`${name}, on the test data`] = inScore(value);
  return found;
}

function told(value) {
  if (value === undefined) return "not set";
  if (typeof value === "number" && value !== 0 && Math.abs(value) < 1e-4) return value.toExponential(); // all digits
  return typeof value === "string" ? value : JSON.stringify(value);
}

// Rows of names with a value for each trial; those that differ are marked, in words too.
function factTable(heading, trials, read, none) {
  const columns = trials.map(read);
  const names = [...new Set(columns.flatMap((one) => Object.keys(one)))];
  if (!names.length && !none) return null;
  const several = trials.length > 1;
  const rows = names.map((name) => {
    const values = columns.map((one) => told(one[name]));
    const differs = several && new Set(values).size > 1;
    const cells = values.map((value) => make("td", {}, value));
    return make("tr", { class: differs ? "differs" : null }, make("th", { scope: "row" }, name), ...cells, several ? make("td", { class: "note" }, differs ? "differs" : "") : null);
  });
  const heads = [make("td"), ...trials.map((one) => make("th", { scope: "col" }, `trial ${one.trial}`)), several ? make("td") : null];
  const table = make("table", { class: "plain facts-table" }, several ? make("thead", {}, make("tr", {}, heads)) : null, make("tbody", {}, rows));
  return make("section", {}, make("h2", {}, heading), names.length ? make("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": heading }, table) : make("p", { class: "note" }, none));
}

function timeTable(trials) {
  const sums = trials.map((one) => one.times.reduce((sum, part) => sum + part.seconds, 0));
  if (!sums.some(Boolean)) return null;
  const bodies = trials.map((one, at) => {
    const rows = one.times.map((part) => {
      const bar = make("progress", { max: String(sums[at]), "aria-hidden": "true" });
      bar.value = part.seconds;
      return make("tr", {}, make("th", { scope: "row" }, part.name), make("td", { class: "number" }, seconds(part.seconds)), make("td", { class: "number" }, `${((100 * part.seconds) / sums[at]).toFixed(1)} %`), make("td", { class: "bar" }, bar));
    });
    const caption = trials.length > 1 ? make("caption", {}, `trial ${one.trial}`) : null;
    return make("table", { class: "plain shares" }, caption, make("tbody", {}, rows));
  });
  return make("section", {}, make("h2", {}, "Where its time went"), ...bodies);
}

function of(trial) {
  return QUERY ? ` of trial ${trial.trial}` : "";
}

function errorPart(trial) {
  if (!trial.error) return null;
  return make("section", {}, make("h2", {}, `Traceback${of(trial)}`), make("pre", { tabindex: "0", "aria-label": `Traceback of trial ${trial.trial}` }, trial.error));
}

// What it has printed; a reader at its end sees what comes next.
function outputPart(trial) {
  const heading = make("h2", {}, `Output${of(trial)}`);
  if (!trial.output) {
    return make("section", {}, heading, make("p", { class: "note" }, "Nothing was printed. With --inline, output is on the terminal alone."));
  }
  const id = `output-${trial.trial}`;
  const shown = document.getElementById(id);
  const at = shown ? shown.scrollTop : 0;
  const follows = !shown || at + shown.clientHeight >= shown.scrollHeight - 4;
  const block = make("pre", { id, class: "output", tabindex: "0", "aria-label": `Output of trial ${trial.trial}` }, trial.output);
  requestAnimationFrame(() => (block.scrollTop = follows ? block.scrollHeight : at));
  return make("section", {}, heading, block);
}

function eventPart(trial) {
  if (!trial.events.length) return null;
  const times = timesOf(trial.events);
  const items = trial.events.map((one, at) => make("li", {}, times[at], " ", one.text));
  return make("section", {}, make("h2", {}, `What happened to it${QUERY ? `: trial ${trial.trial}` : ""}`), make("ol", { class: "events" }, items));
}

function commandPart(trial) {
  const rows = [["train it again", trial.retrain]];
  if (trial.checkpoint) rows.push(["export its model", trial.export], ["checkpoint", trial.checkpoint]);
  const list = make("dl", { class: "pairs" }, rows.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, make("code", {}, text))]));
  return make("section", {}, make("h2", {}, `Commands${of(trial)}`), list);
}

// ---- curves ---------------------------------------------------------------------------------------------------------

function paintTheme() {
  readPaper();
  const kind = theme.dark ? "dark" : "light";
  grouped(TRIALS.trial.map((_, at) => at), TRIALS.trial.map((number) => `trial ${number}`), APART[kind]);
}

function paintCurves() {
  if (!page.opened) return;
  paintTheme();
  showLegend();
  for (const plot of plots) plot.draw();
}

// How many epochs the curves have, if some are left out.
function showDrawn(epochs) {
  find("drawn").hidden = epochs === null;
  if (epochs !== null) tell(find("drawn"), `Of each trial ${inThousands(epochs)} epochs at most are drawn, its first, last and best among them.`);
}

function drawCurves(data, trials) {
  readData(data);
  const metrics = Object.keys(CURVES.metrics);
  find("curves-place").hidden = !metrics.length;
  paintTheme();
  showLegend();
  find("legend").hidden = trials.length < 2;
  if (page.opened && page.metrics === metrics.join("\n")) {
    for (const plot of plots) plot.renew();
    return;
  }
  [page.opened, page.metrics] = [true, metrics.join("\n")];
  closePlots();
  find("all-curves").replaceChildren();
  for (const metric of metrics) {
    new CurvePlot(figureIn(find("all-curves"), metric, "small"), `${metric} by epoch of ${trials.map((one) => `trial ${one.trial}`).join(" and ")}`, metric);
  }
  watchPlots();
}
