"use strict";
// One sweep: where it stands, and its report, which grows as the log does.

const NAME = document.body.dataset.sweep;
const BASE = `${ROOT}${encodeURIComponent(NAME)}/-`;
const GROW_MS = 250; // least pause between two drawings of what has grown

// `problems`: messages about what cannot be read, by their source: the stream or the report.
const live = { facts: null, problems: { stream: "", report: "" }, skew: 0, buffer: [], grown: new Set(), growing: 0, spent: 0, stream: null, newest: 0, asked: null };

document.documentElement.dataset.page = "sweep";
if (document.body.dataset.state) find("state").append(statusMark(document.body.dataset.state));
openPlainSwitch();
listen("");
openActs({ sweep: NAME }).catch((error) => hear(error.message));
acts.lines = readFormLines;
acts.ended = noteAct;
table.marks = { trial: trialCell, star: starCell, note: noteCell };
setInterval(showClock, 1000);
setInterval(growLanes, 1000);
showOutput();

// Before charts are there, the button for light and dark has to work all the same.
function openPlainSwitch() {
  find("theme").addEventListener("click", (event) => {
    if (report.open) return; // the report's own listener does it
    event.stopImmediatePropagation();
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    keepTheme();
  });
}

// `after`: the number of the last line of the log that is drawn; "": lines do not matter yet.
function listen(after) {
  live.stream?.close();
  live.stream = openStream(`${BASE}/events${after === "" ? "" : `?after=${after}`}`, {
    open: () => showProblem("stream", ""), // the server repeats a problem that persists
    facts: (data) => showFacts(JSON.parse(data)),
    report: () => takeReport(),
    log: (data, line) => takeLog(data, line),
    replaced: () => location.reload(), // the log is another one, as after a repair
    problem: (data) => showProblem("stream", JSON.parse(data)),
  });
}

function showProblem(source, text) {
  live.problems[source] = text;
  if (text && !report.open) find("answer-place").replaceChildren();
  showSilence();
}

// ---- where it stands ------------------------------------------------------------------------------------------------

function showFacts(facts) {
  const before = live.facts;
  live.facts = facts;
  live.skew = Date.now() / 1000 - facts.now;
  acts.state = facts.state;
  acts.counts = facts.counts;
  acts.isOver = facts.state === "ended" && facts.reason === "finished" && !facts.unknown; // nothing is left to resume
  acts.mark.note = facts.note;
  acts.best = facts.best && `The best so far: ${facts.best.trials.length > 1 ? `the best of the ${facts.best.trials.length} seeds` : "trial"} ${facts.best.trials.join(", ")}, ${facts.metric} ${inScore(facts.best.value)}${facts.best.trials.length > 1 ? " on average" : ""}. ${facts.best.settings}`;
  showActs();
  showNote(facts);
  showMarks(before, facts);
  showClock();
  showProgress(facts);
  renewTexts();
  showBest(facts);
  showWorkers(facts);
  showRungs(facts);
  showFailures(facts);
  showEvents(facts);
  announce(before, facts);
}

// Texts of the report must not contradict what is known by now: the next report may take seconds to come.
function renewTexts() {
  const { facts } = live;
  if (!facts || facts.read < 1) return;
  const running = facts.state === "running";
  const told = {
    trials: Object.entries(facts.counts).map(([status, count]) => `${inThousands(count)} ${status}`).join(", "),
    ended: running ? "it is running" : facts.state === "killed" ? "its process was killed" : facts.reason,
  };
  for (const [fact, text] of Object.entries(told)) {
    const place = find("facts-place").querySelector(`[data-fact="${fact}"] bdi`);
    if (place && text) tell(place, text);
  }
  const answer = document.querySelector("#answer p.answer[data-running]");
  if (answer && !running) tell(answer, "The sweep does not run any more; its answer is being worked out ...");
}

function stateText(facts) {
  if (facts.state === "running") return ["running", "running"];
  if (facts.state === "killed") return ["killed", "killed"];
  if (facts.state === "reading") return ["ended", "does not run"];
  return facts.reason === "finished" ? ["finished", "finished"] : ["ended", facts.reason || "not begun"];
}

// What changes with the time alone.
function showClock() {
  const { facts } = live;
  if (!facts) return;
  const now = Date.now() / 1000 - live.skew;
  const running = facts.state === "running";
  const [word, told] = stateText(facts);
  document.body.classList.toggle("running", running);
  const mark = find("state");
  if (mark.dataset.told !== told) {
    mark.dataset.told = told;
    mark.replaceChildren(statusMark(word, told));
    document.title = `${told} · ${NAME}`;
  }
  const since = now - facts.now;
  const parts = [inTime(facts.active_s + (running ? since : 0))];
  if (facts.left_s !== null && facts.share !== 1) parts.push(`about ${inTime(Math.max(facts.left_s - since, 1))} left`);
  if (running && facts.epochs_per_s) parts.push(`${figure(facts.epochs_per_s)} epochs/s`);
  if (facts.cost) parts.push(`cost ${inMoney(facts.cost)}${facts.cost_in_all ? ` of about ${inMoney(facts.cost_in_all)}` : ""}`);
  if (facts.read < 1) parts.push(`reading the log: ${Math.floor(100 * facts.read)} %`);
  tell(find("times"), parts.join(" · "));
  showSilence();
}

// A problem comes first: other texts would describe what was read before it.
function showSilence() {
  const { facts } = live;
  const line = find("silence");
  const problem = live.problems.stream || live.problems.report;
  const text = problem || (facts ? describeSilence(facts) : "");
  line.hidden = !text;
  line.classList.toggle("wrong", Boolean(problem) || facts?.state === "killed");
  tell(line, text);
}

function describeSilence(facts) {
  const now = Date.now() / 1000 - live.skew;
  const silent = facts.heard === null ? 0 : now - facts.heard;
  if (facts.state === "killed") return `Its process was killed ${inTime(silent)} ago. Nothing is lost: ${facts.to_resume}`;
  if (facts.state === "running" && silent >= facts.quiet_s && facts.read >= 1) return `No news of the sweep for ${inTime(silent)}, but its process runs. Epochs may take that long.`;
  return facts.unknown;
}

// Whether an element shows something else than at the last call: what is the same is not made and painted again.
function hasChanged(element, ...shown) {
  const key = JSON.stringify(shown);
  if (element.dataset.key === key) return false;
  element.dataset.key = key;
  return true;
}

function showProgress(facts) {
  const bar = find("progress");
  const percent = facts.share === null ? null : Math.round(100 * facts.share);
  const total = facts.total ?? Object.values(facts.counts).reduce((sum, count) => sum + count, 0);
  if (percent === null) bar.removeAttribute("aria-valuenow");
  else bar.setAttribute("aria-valuenow", String(percent));
  const told = facts.total === null ? counted(facts.done, "trial") : `${inThousands(facts.done)} of ${counted(facts.total, "trial")}`;
  bar.setAttribute("aria-valuetext", percent === null ? told : `${told}, ${percent} % of the work`);
  const counts = Object.entries(facts.counts);
  const waiting = Math.max(total - counts.reduce((sum, [, count]) => sum + count, 0), 0);
  const shown = waiting && facts.state !== "ended" ? [...counts, ["to come", waiting]] : counts;
  if (!hasChanged(bar, shown, facts.worth, told)) return;
  bar.replaceChildren(
    ...shown.filter(([status]) => status !== "to come").map(([status]) => {
      const part = make("i", { "data-status": status });
      part.style.width = `${(100 * (facts.worth[status] ?? 0)) / Math.max(total, 1)}%`;
      return part;
    }),
  );
  const all = make("li", {}, make("strong", {}, facts.total === null ? told : `${inThousands(facts.done)}/${counted(facts.total, "trial")}`));
  find("counts").replaceChildren(all, ...shown.map(([status, count]) => make("li", {}, statusMark(status, `${inThousands(count)} ${status}`))));
}

function trialLink(number, text = `trial ${number}`) {
  return make("a", { href: `${ROOT}${encodeURIComponent(NAME)}/${number}` }, text);
}

function showBest(facts) {
  showLeader(facts);
  const line = find("best");
  if (!hasChanged(line, facts.best, facts.state, facts.read < 1)) return;
  if (!facts.best) {
    tell(line, facts.read < 1 ? "" : "No trial has completed yet.");
    return;
  }
  const { best } = facts;
  const links = best.trials.slice(0, 8).flatMap((number, at) => [at ? ", " : "", trialLink(number)]);
  const mean = best.trials.length > 1 ? " on average of " : ", ";
  line.replaceChildren(make("span", { class: "note" }, facts.state === "ended" ? "best " : "best so far "), make("strong", {}, `${facts.metric} ${inScore(best.value)}`), mean, ...links, " ", make("span", { class: "note" }, best.settings));
}

// The running trial that is ahead of all that have completed.
function showLeader({ leader, metric, counts_epochs: countsEpochs }) {
  const line = find("leader");
  line.hidden = !leader;
  if (!leader || !hasChanged(line, leader)) return;
  const progress = `, running, ${countsEpochs ? "epoch " : ""}${leader.position} `;
  line.replaceChildren(make("span", { class: "note" }, "in the lead "), make("strong", {}, `${metric} ${inScore(leader.value)}`), ", ", trialLink(leader.trial), progress, make("span", { class: "note" }, leader.settings));
}

function showWorkers(facts) {
  find("workers").hidden = !facts.workers.length;
  tell(find("metric-name"), facts.metric);
  tell(find("position-unit"), facts.counts_epochs ? "epoch" : "of the minutes");
  const rows = facts.workers.map((one) => {
    const bar = make("progress", { max: String(one.of || 1), "aria-hidden": "true" });
    bar.value = one.done;
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, trialLink(one.trial)),
      make("td", { class: "epochs" }, one.epoch ? one.position : "starting", bar),
      make("td", {}, sparkline(one.curve.map(Number))),
      make("td", { class: "number" }, inScore(one.value)),
      make("td", { class: "settings" }, one.role === "search" ? "" : `${one.role}: `, one.settings),
    );
  });
  replaceRows(find("workers").querySelector("tbody"), rows);
  const use = [];
  if (facts.use.cpu_cores !== undefined) use.push(`${facts.use.cpu_cores.toFixed(1)} CPU cores at work`);
  if (facts.use.gpu_utilization !== undefined) use.push(`GPUs busy ${Math.round(100 * facts.use.gpu_utilization)} %`);
  if (facts.use.memory_peak_bytes !== undefined) use.push(`${(facts.use.memory_peak_bytes / 1e9).toFixed(1)} GB of memory`);
  tell(find("use"), use.join(" · "));
}

// Replaces rows, and keeps the focus on the link that had it.
function replaceRows(body, rows) {
  const held = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  body.replaceChildren(...rows);
  if (held) body.querySelector(`a[href="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
}

function showRungs(facts) {
  find("rungs").hidden = !facts.rungs.length;
  tell(find("rung-unit"), facts.counts_epochs ? "epoch" : "of the minutes");
  if (!hasChanged(find("rungs"), facts.rungs, facts.survivors, facts.total)) return;
  const rows = facts.rungs.map((one) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, facts.counts_epochs ? inThousands(one.epoch) : `${one.epoch} %`),
      make("td", { class: "number" }, inThousands(one.reached)),
      make("td", { class: "number" }, inThousands(one.pruned)),
      make("td", { class: "number" }, inThousands(one.waiting)),
      make("td", {}, one.trials.slice(0, 6).flatMap((number, at) => [at ? ", " : "", trialLink(number, String(number))]), one.waiting > 6 ? " ..." : ""),
    ),
  );
  replaceRows(find("rungs").querySelector("tbody"), rows);
  tell(find("survivors"), facts.survivors === null ? "" : `about ${inThousands(Math.round(facts.survivors))} ${facts.total === null ? "trials" : `of ${inThousands(facts.total)}`} train to the end`);
}

function showFailures(facts) {
  find("failed").hidden = !facts.failures.length;
  const list = find("failed").querySelector("ul");
  if (!hasChanged(list, facts.failures)) return;
  list.replaceChildren(
    ...facts.failures.map((one) => {
      const kind = one.kind && one.kind !== one.status ? ` by ${one.kind}` : "";
      return make("li", {}, statusMark(one.status, `${inThousands(one.count)} ${one.status}${kind}`), ", last ", trialLink(one.trial), ": ", one.reason);
    }),
  );
  const hasFailed = facts.failures.some((one) => one.status === "failed");
  if (!hasFailed && facts.failures.some((one) => one.status === "diverged")) list.append(make("li", { class: "note" }, "Diverged trials are results: trying them again would end the same. Change the space, such as a lower maximum of the learning rate."));
  if (hasFailed) list.append(make("li", { class: "note" }, "Tracebacks are on the pages of these trials, and further below."));
}

// A text about a trial, in which the trial's name is a link.
function linkTrial(text, trial) {
  const name = `trial ${trial}`;
  const at = trial === null ? -1 : text.indexOf(name);
  if (at < 0) return [text];
  return [text.slice(0, at), trialLink(trial), text.slice(at + name.length)];
}

const SHOWN_EVENTS = 10;
function showEvents(facts) {
  find("events").hidden = !facts.events.length;
  const list = find("events").querySelector("ol");
  const shown = facts.events.slice(0, live.allEvents ? facts.events.length : SHOWN_EVENTS);
  const newest = Math.max(0, ...facts.events.map((one) => one.line));
  if (!hasChanged(list, newest, shown.length)) return;
  const times = timesOf(shown);
  const items = shown.map((one, at) => {
    const fresh = live.newest && one.line > live.newest;
    const words = linkTrial(one.text, one.trial);
    return make("li", { class: fresh ? "fresh" : null, "data-status": one.status || null }, times[at], " ", ...words);
  });
  live.newest = newest;
  replaceRows(list, items);
  find("events").querySelector("button")?.remove();
  if (facts.events.length > shown.length) {
    const more = make("button", { type: "button" }, `${facts.events.length - shown.length} earlier ones`);
    more.addEventListener("click", () => {
      live.allEvents = true;
      showEvents(live.facts);
    });
    find("events").append(more);
  }
}

// To a screen reader: what a person would look up for.
function announce(before, facts) {
  if (!before || facts.read < 1) return;
  if (before.state !== facts.state) hear(`${NAME} is ${stateText(facts)[1]}`);
  else if (facts.best && before.best?.value !== facts.best.value) hear(`new best: ${facts.metric} ${inScore(facts.best.value)}, trial ${facts.best.trials[0]}`);
  else {
    const failed = facts.failures.find((one) => one.count > countOf(before, one));
    if (failed) hear(`trial ${failed.trial} ended without a result: ${failed.reason}`);
  }
}

function countOf(facts, { status, kind }) {
  return facts.failures.find((one) => one.status === status && one.kind === kind)?.count ?? 0;
}

async function showOutput() {
  try {
    const files = await getJson(`${BASE}/output.json`);
    const parts = files.filter((one) => one.text.trim()).map((one) => make("details", {}, make("summary", {}, one.file), make("pre", { tabindex: "0", "aria-label": one.file }, one.text)));
    find("output").append(...parts);
    find("output").hidden = !parts.length;
  } catch {
    find("output").hidden = true;
  }
}
