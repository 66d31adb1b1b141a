"use strict";
// Elements and texts that all pages make. What comes from a sweep is only ever text.

// Where the page begins: below a proxy it is no "/".
const ROOT = new URL(document.body.dataset.root, location.href).pathname;

function find(id) {
  return document.getElementById(id);
}

// An element with attributes and children; a child that is a text is isolated, for it may be of another direction.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    element.append(child instanceof Node ? child : directed(String(child)));
  }
  return element;
}

function directed(text) {
  if (!/[^\u0000-\u024f\u2000-\u22ff]/.test(text)) return document.createTextNode(text);
  const element = document.createElement("bdi");
  element.textContent = text;
  return element;
}

// Sets a text only where it differs, so that nothing is selected away or said twice.
function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function hear(text) {
  tell(find("heard"), text);
}

function inTime(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.round(seconds)); // rounded before it is divided: 119.6 s are 2 min 00 s
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// A whole number that counts something: 10,000. As in data.js, which not all pages have.
function inThousands(count) {
  return count.toLocaleString("en");
}

function counted(count, noun) {
  return `${inThousands(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function inScore(value) {
  if (value === null || value === undefined || value === "") return "";
  const number = Number(value);
  if (!Number.isFinite(number)) return String(value);
  const size = Math.abs(number);
  if (size >= 9999.5 && size < 1e9) return number.toFixed(0); // four digits would have an exponent, and hide the rest
  const rounded = Number(number.toPrecision(4));
  const isTiny = rounded !== 0 && Math.abs(rounded) < 1e-4;
  if (isTiny || size >= 1e9) return withExponent(rounded);
  return size < 1e-4 ? String(rounded) : number.toPrecision(4);
}

// As the commands write it: 8.1e-09.
function withExponent(number) {
  const [digits, power] = number.toExponential().split("e");
  return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

// As the commands write it: 1,234.50, and 0.0042.
function inMoney(value) {
  if (value > 0 && value < 1e-4) return "< 0.0001";
  if (value > 0 && value < 0.0995) return String(Number(value.toPrecision(2))); // from there on, two decimals are enough
  return value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

// Elements with the times of events, with their dates unless all are of today.
function timesOf(events) {
  const moments = events.map((one) => new Date(1000 * one.time));
  const today = new Date().toDateString();
  const style = { timeStyle: "medium", hourCycle: "h23" };
  if (moments.some((moment) => moment.toDateString() !== today)) style.dateStyle = "medium";
  return moments.map((moment) => make("time", { datetime: moment.toISOString() }, moment.toLocaleString([], style)));
}

// A state or a status: a word, and a mark whose colour repeats it.
function statusMark(status, text = status) {
  return make("span", { class: "status", "data-status": status }, make("i", { "aria-hidden": "true" }), text);
}

// What state a sweep of the list or its page is in, as one of few words, for colours and choices.
function stateWord(state) {
  if (state === "running" || state === "damaged") return state;
  if (state === "unfinished" || state === "killed") return "killed";
  if (state === "finished") return "finished";
  return "ended";
}

function sparkline(values, goal) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 120 26");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const known = values.filter((value) => Number.isFinite(value));
  if (known.length < 2) return svg;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const path = document.createElementNS(space, "path");
  let [text, pen] = ["", "M"];
  values.forEach((value, at) => {
    if (!Number.isFinite(value)) {
      pen = "M";
      return;
    }
    const x = (118 * at) / Math.max(values.length - 1, 1) + 1;
    const y = 24 - (22 * (value - low)) / (high - low || 1);
    text += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  path.setAttribute("d", text);
  svg.append(path);
  return svg;
}

async function getJson(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  const content = await answer.json();
  if (!answer.ok) throw new Error(inWords(content));
  return content;
}

// With the `signal` of an AbortController, the request can be given up.
async function post(address, content, signal) {
  const answer = await fetch(address, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(content),
  });
  const found = await answer.json();
  if (!answer.ok) throw new Error(inWords(found));
  return found;
}

// The document of an error, as the command line says it.
function inWords(content) {
  const mistakes = content?.error ?? [];
  return mistakes
    .map((one) => [one.where && `${one.where}:`, one.is, one.expected && `(expected ${one.expected})`, one.hint && `; ${one.hint}`].filter(Boolean).join(" "))
    .join("\n");
}

// On pages without charts; the report's own scripts have the same button.
function openPlainTheme() {
  find("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--scheme").trim() === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    keepTheme();
  });
}

function keepTheme() {
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme ?? "");
  } catch {
    // this browser keeps nothing
  }
}

function takeTheme() {
  try {
    const kept = localStorage.getItem("theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // this browser keeps nothing
  }
}
takeTheme();
