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
    if (stream.readyState === EventSource.CLOSED) showLink("The server of this page does not let this browser in any more; it may have been started again. Run python -m sweep ui and open the address that it prints.");
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
    showLink(`The server of this page has not answered for ${inTime(gone)}. The sweep itself is not affected, and the page continues when the server answers again.`);
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
