"use strict";
// The report as a file: its document is in the page.

readData(JSON.parse(box("data").textContent));
if (N) openReport();
else openTheme();
document.documentElement.dataset.ready = "yes";
