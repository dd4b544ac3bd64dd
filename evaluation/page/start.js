// Brings the page to life once everything is read.
"use strict";

(function (page) {
  document.querySelectorAll("main table").forEach(page.activateTable);
  page.startCharts();
  page.startSelection();
})(window.page);
