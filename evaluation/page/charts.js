// The life of a chart: drawn when it comes into view or the browser is idle, again when the selection, the width or the
// colour scheme changes, and at the width of paper before printing.
/* global d3 */

import { create, describeRow, readData, rowsOf, toCsv } from "./data.js";
import { bars, blobs, intervals, lines, points } from "./kinds.js";
import { layOut } from "./layout.js";
import { medium, unique } from "./marks.js";
import { KEYS, matchesSelection, onSelection, startSelection, toggle } from "./selection.js";
import { saveFile, standaloneSvg } from "./svg.js";
import { activateTable, tableOf } from "./tables.js";
import { boxes, matrix } from "./wide.js";

const PAPER_PX = 686;
const KINDS = { bars, blobs, boxes, intervals, lines, matrix, points };
const charts = [];
const waiting = new Set();

function facetsOf(rows, chart, plan) {
  if (plan.inRow) return d3.range(0, rows.length, plan.inRow).map((start) => ({ title: "", rows: rows.slice(start, start + plan.inRow) }));
  if (!chart.facet) return [{ title: "", rows }];
  return unique(rows.map((row) => row[chart.facet])).map((value) => ({
    title: String(value),
    rows: rows.filter((row) => row[chart.facet] === value),
    row: KEYS.includes(chart.facet) ? { [chart.facet]: value } : null,
  }));
}

// Panels of what is selected; all of them if nothing is, or if none would be left.
function selectedRows(rows, chart) {
  if (!KEYS.includes(chart.facet)) return rows;
  const left = rows.filter((row) => matchesSelection({ [chart.facet]: row[chart.facet] }));
  return left.length ? left : rows;
}

function draw(one) {
  waiting.delete(one);
  const width = medium.isPaper ? PAPER_PX : one.drawing.clientWidth;
  if (!width) return;
  const { data } = one;
  const rows = selectedRows(one.rows, data.chart);
  const plan = KINDS[data.chart.kind](data, rows, data.chart, width);
  const images = layOut(facetsOf(rows, data.chart, plan), plan, width, medium.isPaper);
  for (const image of images) {
    image.setAttribute("role", "img");
    image.setAttribute("aria-label", one.label);
  }
  one.drawing.replaceChildren(...images);
  one.drawing.style.minHeight = "0";
  const scrolls = one.drawing.scrollWidth > one.drawing.clientWidth;
  one.drawing.toggleAttribute("tabindex", scrolls);
  if (scrolls) one.drawing.tabIndex = 0;
  one.width = width;
}

const inView = (one) => {
  const box = one.drawing.getBoundingClientRect();
  return box.bottom > -300 && box.top < window.innerHeight + 300;
};

// Redraws what can be seen now and the rest when the browser has time.
function redrawAll() {
  charts.forEach((one) => waiting.add(one));
  charts.filter(inView).forEach(draw);
  drawWaiting();
}

let scheduled = false;
function drawWaiting() {
  if (scheduled || waiting.size === 0) return;
  scheduled = true;
  const later = window.requestIdleCallback || ((work) => setTimeout(work, 20));
  later(() => {
    scheduled = false;
    const [next] = waiting;
    if (next) draw(next);
    drawWaiting();
  });
}

function addTools(section, one) {
  const button = (text, action) => {
    const made = create("button", { type: "button", "aria-label": `Save ${one.title} as ${text}` }, text);
    made.addEventListener("click", action);
    return made;
  };
  const details = create("details", {}, create("summary", {}, "Figures as a table"));
  details.addEventListener("toggle", () => details.append(tableOf(one.data, one.title)), { once: true });
  const svg = button("SVG", () => saveFile(`${section.id}.svg`, "image/svg+xml", standaloneSvg(one.drawing.firstElementChild)));
  const csv = button("CSV", () => saveFile(`${section.id}.csv`, "text/csv", toCsv(one.data)));
  one.drawing.after(create("div", { class: "tools" }, svg, csv, details));
}

function addChart(section) {
  const data = readData(section.querySelector('script[type="application/json"]'));
  if (!KINDS[data.chart.kind]) throw new Error(`${section.id}: unknown kind of chart ${data.chart.kind}`);
  const drawing = create("div", { class: "drawing" });
  const title = section.querySelector("h3").textContent;
  const about = section.querySelector(".about");
  const one = { data, rows: rowsOf(data), drawing, title, label: `${title}. ${about.textContent} The figures follow as a table.` };
  about.after(drawing);
  addTools(section, one);
  charts.push(one);
}

function showTip(event) {
  const tip = document.getElementById("tip");
  const marked = event.target.closest?.("[data-row]");
  const section = marked?.closest("section.chart");
  tip.hidden = !section || marked.pageRow.index === undefined;
  if (tip.hidden) return;
  tip.textContent = describeRow(charts.find((one) => section.contains(one.drawing)).data, marked.pageRow);
  const [x, y] = [event.clientX + 14, event.clientY + 14];
  tip.style.left = `${Math.min(x, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${y + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : y}px`;
}

function selectMarked(event) {
  const row = event.target.closest?.("[data-row]")?.pageRow;
  const key = row && ["case", ...KEYS].find((one) => typeof row[one] === "string");
  if (key) toggle(key, row[key]);
}

function print(starts) {
  medium.isPaper = starts;
  charts.forEach(draw);
}

function startCharts() {
  document.querySelectorAll("section.chart").forEach(addChart);
  document.body.append(create("div", { id: "tip", hidden: "" }));
  const main = document.querySelector("main");
  main.addEventListener("pointermove", showTip);
  main.addEventListener("pointerleave", showTip);
  main.addEventListener("click", selectMarked);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.getElementById("tip").hidden = true;
  });
  onSelection(redrawAll);
  new ResizeObserver(() => !medium.isPaper && charts.some((one) => one.drawing.clientWidth !== one.width) && redrawAll()).observe(main);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  document.addEventListener("scroll", () => [...waiting].filter(inView).forEach(draw), { passive: true });
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  redrawAll();
}

document.querySelectorAll("main table").forEach(activateTable);
startCharts();
startSelection();
// For scripts that wait until everything is drawn.
window.page = { isDrawn: () => waiting.size === 0 && charts.every((one) => one.drawing.firstElementChild) };
