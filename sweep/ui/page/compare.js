"use strict";
// Several sweeps: what `sweep compare` answers, with the charts of the report.

openStream(`${ROOT}-/quiet`, {});
(async () => {
  try {
    showReport(await getJson(`${ROOT}-/compare.json${location.search}`));
    if (!N) openTheme();
  } catch (error) {
    find("answer-place").replaceChildren(make("p", { class: "wrong", role: "alert" }, error.message));
    find("answer-place").removeAttribute("aria-busy");
    openPlainTheme();
  }
})();
