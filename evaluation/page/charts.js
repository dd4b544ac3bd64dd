// The life of a chart: read when its fold opens, drawn when it comes into view or the browser is idle, again when the
// selection, the width or the colour scheme changes, and at the width of paper before printing.
/* global d3 */

import { create, describeRow, readData, rowsOf, toCsv } from "./data.js";
import { bars, blobs, intervals, lines, points } from "./kinds.js";
import { layOut } from "./layout.js";
import { colourOfTeam, medium, unique } from "./marks.js";
import { KEYS, clearSelection, matchesSelection, onSelection, startSelection, toggle } from "./selection.js";
import { saveFile, standaloneSvg } from "./svg.js";
import { activateTable, tableOf } from "./tables.js";
import { boxes, matrix } from "./wide.js";

const PAPER_PX = 686;
const KINDS = { bars, blobs, boxes, intervals, lines, matrix, points };
const charts = [];
const waiting = new Set();

// Whether a closed <details> hides the element.
const isFolded = (element) => Boolean(element.closest("details:not([open])"));

function facetsOf(rows, chart, plan) {
  if (plan.inRow) return d3.range(0, rows.length, plan.inRow).map((start) => ({ title: "", rows: rows.slice(start, start + plan.inRow) }));
  if (!chart.facet) return [{ title: "", rows }];
  return unique(rows.map((row) => row[chart.facet])).map((value) => ({
    title: String(value),
    rows: rows.filter((row) => row[chart.facet] === value),
    row: KEYS.includes(chart.facet) ? { [chart.facet]: value } : null,
  }));
}

// The panels of the selection; all of them without a selection, or if none would be left. One of panels to pick from.
function selectedRows(rows, chart, picked) {
  if (picked !== undefined) return rows.filter((row) => row[chart.facet] === picked);
  if (!KEYS.includes(chart.facet)) return rows;
  const left = rows.filter((row) => matchesSelection({ [chart.facet]: row[chart.facet] }));
  return left.length ? left : rows;
}

function draw(one) {
  waiting.delete(one);
  const width = medium.isPaper ? PAPER_PX : one.drawing.clientWidth;
  one.isStale = !width || isFolded(one.drawing);
  if (one.isStale) return;
  const { data } = one;
  const rows = selectedRows(one.rows, data.chart, one.picker?.value);
  const plan = KINDS[data.chart.kind](data, rows, data.chart, width);
  const images = layOut(facetsOf(rows, data.chart, plan), plan, width, medium.isPaper);
  for (const image of images) {
    image.setAttribute("role", "img");
    image.setAttribute("aria-label", one.label);
  }
  one.drawing.replaceChildren(...images);
  one.drawing.style.minHeight = "0";
  one.width = width;
}

const inView = (one) => {
  const box = one.drawing.getBoundingClientRect();
  return box.bottom > -300 && box.top < window.innerHeight + 300;
};

function redrawAll() {
  charts.forEach((one) => waiting.add(one));
  drawWaiting();
}

// Draws what can be seen now and, one by one, the rest when the browser has time.
let scheduled = false;
function drawWaiting() {
  [...waiting].filter(inView).forEach(draw);
  if (scheduled || waiting.size === 0) return;
  scheduled = true;
  const later = window.requestIdleCallback || ((work) => setTimeout(work, 20));
  later(() => {
    scheduled = false;
    [...waiting].slice(0, 1).forEach(draw);
    drawWaiting();
  });
}

// Of many panels one at a time: the reader picks which.
function addPicker(one) {
  const { facet, pick } = one.data.chart;
  const values = pick ? unique(one.rows.map((row) => row[facet])) : [];
  if (values.length < 2) return;
  one.picker = create("select", { onchange: () => draw(one) }, ...values.map((value) => create("option", { value }, value)));
  one.drawing.before(create("label", { class: "pick" }, `${one.data.columns[facet].title} `, one.picker));
}

function addTools(section, one) {
  const button = (text, onclick) => create("button", { type: "button", "aria-label": `Save ${one.title} as ${text}`, onclick }, text);
  const details = create("details", {}, create("summary", {}, "Figures as a table"));
  details.addEventListener("toggle", () => details.append(tableOf(one.data, one.title)), { once: true });
  const svg = button("SVG", () => saveFile(`${section.id}.svg`, "image/svg+xml", standaloneSvg(one.drawing.firstElementChild)));
  const csv = button("CSV", () => saveFile(`${section.id}.csv`, "text/csv", toCsv(one.data)));
  one.drawing.after(create("div", { class: "tools" }, svg, csv, details));
}

function addChart(section) {
  section.dataset.ready = "";
  const data = readData(section.querySelector('script[type="application/json"]'));
  if (!KINDS[data.chart.kind]) throw new Error(`${section.id}: unknown kind of chart ${data.chart.kind}`);
  const title = section.querySelector("h3").textContent;
  const about = section.querySelector(".about");
  const attributes = { class: "drawing", role: "group", tabindex: "0", "aria-label": `${title}: arrow keys read the values` };
  const drawing = create("div", { ...attributes, onkeydown: (event) => readNext(event, one), onblur: () => showTip(null) });
  const one = { data, rows: rowsOf(data), drawing, title, label: `${title}. ${about.textContent} The figures follow as a table.` };
  about.after(drawing);
  addPicker(one);
  addTools(section, one);
  charts.push(one);
  waiting.add(one);
}

// Activates charts and tables when their fold opens.
function wake() {
  for (const table of document.querySelectorAll("main table:not([data-ready])")) if (!isFolded(table)) activateTable(table);
  for (const section of document.querySelectorAll("section.chart:not([data-ready])")) if (!isFolded(section.querySelector(".about"))) addChart(section);
  for (const one of charts) if (one.isStale && !isFolded(one.drawing)) waiting.add(one);
  drawWaiting();
}

// Shows the values of a mark beside a point of the window; hides them without a mark.
function showTip(marked, left = 0, top = 0) {
  const tip = document.getElementById("tip");
  const section = marked?.closest("section.chart");
  tip.hidden = !section || marked.pageRow.index === undefined;
  if (tip.hidden) return;
  tip.textContent = describeRow(charts.find((one) => section.contains(one.drawing)).data, marked.pageRow);
  tip.style.left = `${Math.min(left + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${top + 14 + tip.offsetHeight > window.innerHeight ? top - tip.offsetHeight - 10 : top + 14}px`;
}

// Arrow keys go from mark to mark of a chart that has the focus, and Enter selects.
function readNext(event, one) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const marks = [...one.drawing.querySelectorAll('[data-row]:not([data-row=""])')];
  if (event.key === "Enter" && marks[one.place]) selectMarked(marks[one.place]);
  if (!step || !marks.length) return;
  event.preventDefault();
  one.place = ((one.place ?? (step > 0 ? -1 : 0)) + step + marks.length) % marks.length;
  marks[one.place].scrollIntoView({ block: "nearest", inline: "nearest" });
  const box = marks[one.place].getBoundingClientRect();
  showTip(marks[one.place], box.right, box.bottom);
}

function selectMarked(marked) {
  const row = marked?.pageRow;
  const key = row && ["case", ...KEYS].find((one) => typeof row[one] === "string");
  if (key) toggle(key, row[key]);
}

function print(starts) {
  medium.isPaper = starts;
  charts.forEach(draw);
}

// Escape hides the values, and then clears the selection.
function escape(event) {
  if (event.key !== "Escape" || event.target.closest("input, select")) return;
  if (document.getElementById("tip").hidden) clearSelection();
  else showTip(null);
}

// Teams that share the grey have a colour while they are selected, also beside their names.
function colourNames() {
  /** @type {NodeListOf<HTMLElement>} */
  const marks = document.querySelectorAll("tr[data-team] .swatch");
  for (const mark of marks) mark.style.background = colourOfTeam(mark.closest("tr").dataset.team);
}

function startCharts() {
  document.body.append(create("div", { id: "tip", role: "status", hidden: "" }));
  const main = document.querySelector("main");
  const marked = (event) => event.target.closest?.("[data-row]");
  main.addEventListener("pointermove", (event) => showTip(marked(event), event.clientX, event.clientY));
  main.addEventListener("pointerleave", () => showTip(null));
  main.addEventListener("click", (event) => selectMarked(marked(event)));
  main.addEventListener("toggle", wake, true);
  document.addEventListener("keydown", escape);
  onSelection(redrawAll);
  onSelection(colourNames);
  const isResized = (one) => !isFolded(one.drawing) && one.drawing.clientWidth !== one.width;
  new ResizeObserver(() => !medium.isPaper && charts.some(isResized) && redrawAll()).observe(main);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  document.addEventListener("scroll", drawWaiting, { passive: true });
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  wake();
}

startCharts();
startSelection();
// For scripts that wait until everything is drawn.
window.page = { isDrawn: () => waiting.size === 0 && charts.every((one) => one.drawing.firstElementChild) };
