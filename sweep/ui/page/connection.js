"use strict";
// The stream of news from the page's server, and what is said when it stops.

const PATIENCE = 3; // seconds without the server until it is said

// `handlers`: by the kind of the event, called with its data and the number of the log's line.
function openStream(address, handlers) {
  const stream = new EventSource(address);
  let lost = 0;
  const heard = () => {
    lost = 0;
    showLink("");
  };
  stream.addEventListener("open", heard);
  stream.addEventListener("error", () => {
    lost ||= Date.now();
    if (stream.readyState === EventSource.CLOSED) showLink("The server of this page does not know this browser any more. Start it again with: python -m sweep ui, and open the address that it prints.");
  });
  for (const [kind, handle] of Object.entries(handlers)) {
    stream.addEventListener(kind, (event) => {
      heard();
      handle(event.data, Number(event.lastEventId || 0));
    });
  }
  const clock = setInterval(() => {
    const gone = lost ? (Date.now() - lost) / 1000 : 0;
    if (gone < PATIENCE || stream.readyState === EventSource.CLOSED) return;
    showLink(`The server of this page does not answer since ${inTime(gone)}. The sweep is not touched by that; the page goes on by itself when the server does.`);
  }, 1000);
  return {
    close() {
      clearInterval(clock);
      stream.close();
    },
  };
}

function showLink(text) {
  const line = find("link");
  line.hidden = !text;
  tell(line, text);
  document.body.classList.toggle("cut-off", Boolean(text));
}
