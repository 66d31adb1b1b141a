// In the output of a notebook's cell: finds a way from this browser to the page's server, and opens it in a frame.

const LOCAL = ["localhost", "127.0.0.1"];

// The ways that this notebook may have: through Jupyter itself, and straight to this machine.
function listWays(port) {
  const ways = [];
  const config = document.getElementById("jupyter-config-data");
  const base = config ? JSON.parse(config.textContent).baseUrl : document.body.dataset.baseUrl;
  if (base) ways.push(new URL(`${base.replace(/\/?$/, "/")}proxy/${port}/`, location.href).href);
  const isLocal = LOCAL.includes(location.hostname);
  const isInAnEditor = !location.protocol.startsWith("http"); // as in VS Code, which forwards ports
  if (isLocal || isInAnEditor) ways.push(`http://${isLocal ? location.hostname : LOCAL[1]}:${port}/`);
  return ways;
}

async function leadsThere(way, pass) {
  try {
    const answer = await fetch(`${way}-/here?pass=${encodeURIComponent(pass)}`, { cache: "no-store" });
    return answer.status === 204;
  } catch {
    return false;
  }
}

function makeAddress(way, given, sweep, ancestors) {
  const query = new URLSearchParams([["pass", given], ["sweep", sweep], ["origin", new URL(way).origin]]);
  for (const ancestor of ancestors) query.append("ancestor", ancestor);
  return `${way}?${query}`;
}

function makeFrame(way, { framePass, tabPass, sweep, height }) {
  const link = document.createElement("a");
  link.textContent = "open in a tab";
  link.target = "_blank";
  link.rel = "noreferrer";
  link.href = makeAddress(way, tabPass, sweep, []);
  const ancestors = new Set([location.origin, ...(location.ancestorOrigins ?? [])]);
  const canBeNamed = [...ancestors].every((origin) => /:\/\/./.test(origin)); // in a policy; a file cannot, nor "null"
  if (!canBeNamed) return [link];
  const frame = document.createElement("iframe");
  frame.title = sweep ? `The sweep ${sweep}` : "Sweeps";
  frame.style.cssText = `display: block; width: 100%; height: ${height}px; border: 0`;
  frame.src = makeAddress(way, framePass, sweep, ancestors);
  return [frame, link];
}

function explain({ port, host }) {
  const isInJupyter = location.protocol.startsWith("http");
  const lines = [`This browser does not reach the page of sweep, on port ${port} of ${host}.`, "If the kernel was started again since, run the cell again."];
  if (isInJupyter) lines.push("Else install jupyter-server-proxy where Jupyter runs: pip install jupyter-server-proxy. Start Jupyter again, and run the cell again.");
  if (LOCAL.includes(location.hostname)) lines.push(`Or forward this port as well: ssh -L ${port}:127.0.0.1:${port} ${host}`);
  if (!isInJupyter) lines.push(`Else forward port ${port}, and run the cell again.`);
  return lines.map((line) => Object.assign(document.createElement("p"), { textContent: line }));
}

async function openPage(place) {
  const data = { ...place.dataset };
  for (const way of listWays(data.port)) {
    if (await leadsThere(way, data.framePass)) {
      place.replaceChildren(...makeFrame(way, data));
      return;
    }
  }
  place.replaceChildren(...explain(data));
}

// Notebooks may run the script before they show the output.
function start(tries) {
  const place = document.getElementById(ID);
  if (place) openPage(place);
  else if (tries) setTimeout(() => start(tries - 1), 50);
}

start(100);
