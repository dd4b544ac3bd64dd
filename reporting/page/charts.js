// Charts are drawn when they come into view, again when the selection, the width or the colour scheme changes, and
// before printing at the width of paper.

// Between the margins of A4. A wide board turns the paper (page.css).
const PAPER_PX = document.querySelector("table.board.wide") ? 1015 : 686;
const GAP_PX = 26;
const KINDS = { bars, blobs, boxes, intervals, lines, matrix, podium, points };
const charts = new Map(); // by the element in which they are drawn
const inView = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(charts.get(entry.target))), { rootMargin: "300px" });

function splitIntoFacets(rows, chart, plan) {
  if (plan.inRow) return d3.range(0, rows.length, plan.inRow).map((start) => ({ title: "", rows: rows.slice(start, start + plan.inRow) }));
  if (!chart.facet) return [{ title: "", rows }];
  return d3.groups(rows, (row) => row[chart.facet]).map(([value, group]) => ({ title: String(value), rows: group, row: { [chart.facet]: value } }));
}

// Select the rows of the panels to draw. A figure with a picker shows the picked panel, and all panels on paper. Other
// figures show the panels of the selection, or all panels if nothing is selected or no panel would be left.
function selectRows({ rows, data: { chart }, picker }) {
  if (picker && !medium.isPaper) return rows.filter((row) => row[chart.facet] === picker.value);
  if (!KEYS.includes(chart.facet)) return rows;
  const left = rows.filter((row) => matchesSelection({ [chart.facet]: row[chart.facet] }));
  return left.length ? left : rows;
}

function draw(figure) {
  if (!figure.isStale || !figure.drawing.checkVisibility()) return; // already drawn, or in a closed fold
  figure.isStale = false;
  const width = medium.isPaper ? PAPER_PX : figure.drawing.clientWidth;
  if (!figure.data) readChart(figure);
  const { chart } = figure.data;
  const rows = selectRows(figure);
  const plan = KINDS[chart.kind](figure.data, rows, chart, width);
  const facets = splitIntoFacets(rows, chart, plan);
  // As many columns as fit, in rows of equal length.
  const fitting = Math.max(1, Math.min(facets.length, Math.floor((width - plan.labels + GAP_PX) / (plan.min + GAP_PX))));
  const columns = Math.ceil(facets.length / Math.ceil(facets.length / fitting));
  const area = Math.min(plan.max, Math.max(plan.min, (width - plan.labels - GAP_PX * (columns - 1)) / columns));
  const panels = facets.map((facet, place) => drawPanel(facet, plan, place % columns ? 0 : plan.labels, area));
  const lines = d3.range(0, panels.length, columns).map((start) => create("div", { class: "panels" }, ...panels.slice(start, start + columns)));
  const content = create("div", { role: "img", "aria-label": figure.label }, ...drawLegend(plan.legend ?? []), ...lines);
  figure.drawing.replaceChildren(content);
  figure.drawing.style.minHeight = "0";
}

function drawPanel(facet, plan, labels, area) {
  const title = create("div", { class: "panel-title", style: `margin-left: ${labels}px` }, ...wrapText(facet.title, area).map((line) => create("div", {}, line)));
  if (facet.row) tagElement(title, facet.row);
  const panel = plan.panel({ rows: facet.rows, width: labels + area, labels, hasLabels: labels > 0 });
  panel.setAttribute("aria-hidden", "true"); // the chart is one image, and its figures follow as a table
  return create("div", {}, ...(facet.title ? [title] : []), panel);
}

function drawLegend(entries) {
  const items = entries.map(({ text, colour, dashes, symbol, sign }) => {
    const width = dashes === undefined ? 20 : 40;
    const mark = createSvg("svg", { width, height: 12 });
    if (dashes !== undefined) mark.append(createSvg("line", { x2: width, y1: 6, y2: 6, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dashes }));
    if (symbol !== undefined) mark.append(createSvg("path", { d: drawSymbol(symbol), transform: `translate(${width / 2}, 6)`, fill: colour }));
    if (dashes === undefined && symbol === undefined) mark.append(createSvg("rect", { x: 6, width: 12, height: 12, rx: 2, fill: colour }));
    if (sign !== undefined) mark.append(createSvg("text", { x: 12, y: 10, "text-anchor": "middle", "font-size": 12, fill: "var(--soft)" }, sign));
    return create("li", {}, mark, create("span", {}, text));
  });
  return items.length ? [create("ul", { class: "legend" }, ...items)] : [];
}

function drawSymbol(symbol) {
  const types = { circle: d3.symbolCircle, square: d3.symbolSquare, triangle: d3.symbolTriangle, diamond: d3.symbolDiamond, star: d3.symbolStar };
  return d3.symbol(types[symbol], 50)();
}

function redrawAll() {
  for (const figure of charts.values()) {
    figure.isStale = true;
    inView.unobserve(figure.drawing);
    inView.observe(figure.drawing); // reports at once whether it is in view
  }
}

function drawAll() {
  charts.forEach(draw);
}

function readChart(figure) {
  const { section, drawing, title } = figure;
  const data = readData(section.querySelector('script[type="application/json"]'));
  if (!KINDS[data.chart.kind]) throw new Error(`${section.id}: unknown kind of chart ${data.chart.kind}`);
  Object.assign(figure, { data, rows: listRows(data) });
  const { facet, pick } = data.chart;
  const values = pick ? unique(figure.rows.map((row) => row[facet])) : [];
  if (values.length > 1) {
    const onchange = () => draw(Object.assign(figure, { isStale: true }));
    figure.picker = create("select", { onchange }, ...values.map((value) => create("option", { value }, value)));
    drawing.before(create("label", { class: "pick" }, `${data.columns[facet].title} `, figure.picker));
  }
  const button = (text, onclick) => create("button", { type: "button", "aria-label": `Save ${title} as ${text}`, onclick }, text);
  const details = create("details", {}, create("summary", {}, "Figures as a table"));
  details.addEventListener("toggle", () => details.append(makeTable(data, title)), { once: true });
  const svg = button("SVG", () => saveFile(`${section.id}.svg`, "image/svg+xml", makeStandaloneSvg(drawing)));
  const csv = button("CSV", () => saveFile(`${section.id}.csv`, "text/csv", toCsv(data)));
  drawing.after(create("div", { class: "tools" }, svg, csv, details));
}

function addChart(section) {
  const title = section.querySelector("h3").textContent;
  const about = section.querySelector(".about");
  const attributes = { class: "drawing", role: "group", tabindex: "0", "aria-label": `${title}: use the arrow keys to read the values` };
  const drawing = create("div", { ...attributes, onkeydown: (event) => readNext(event, figure), onblur: () => showTip(null) });
  const figure = { section, drawing, title, isStale: true, label: `${title}. ${about.textContent} A table with the figures follows.` };
  charts.set(drawing, figure);
  about.after(drawing);
  inView.observe(drawing);
}

function activateTables() {
  for (const table of document.querySelectorAll("main table:not([data-ready])")) if (!table.closest("details:not([open])")) activateTable(table);
}

// Show the values of a mark next to a point of the window, or hide them if there is no mark.
function showTip(marked, left = 0, top = 0) {
  const tip = document.getElementById("tip");
  const drawing = marked?.closest(".drawing");
  tip.hidden = !drawing || marked.pageRow.index === undefined;
  if (tip.hidden) return;
  tip.textContent = describeRow(charts.get(drawing).data, marked.pageRow);
  tip.style.left = `${Math.min(left + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${top + 14 + tip.offsetHeight > window.innerHeight ? top - tip.offsetHeight - 10 : top + 14}px`;
}

// Go from mark to mark of the focused chart by the arrow keys, and select a mark by Enter.
function readNext(event, figure) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const marks = [...figure.drawing.querySelectorAll('[data-row]:not([data-row=""])')];
  if (event.key === "Enter" && marks[figure.place]) selectMarked(marks[figure.place]);
  if (!step || !marks.length) return;
  event.preventDefault();
  figure.place = ((figure.place ?? (step > 0 ? -1 : 0)) + step + marks.length) % marks.length;
  marks[figure.place].scrollIntoView({ block: "nearest", inline: "nearest" });
  const box = marks[figure.place].getBoundingClientRect();
  showTip(marks[figure.place], box.right, box.bottom);
}

function selectMarked(marked) {
  const row = marked?.pageRow;
  const key = row && ["case", ...KEYS].find((name) => typeof row[name] === "string");
  if (key) toggle(key, row[key]);
}

// Closed sections that are open only on paper.
const openOnPaper = [];

/** Draw for paper, on which all sections are open, or for the screen. @param {boolean} isPaper */
function preparePrint(isPaper) {
  medium.isPaper = isPaper;
  /** @type {NodeListOf<HTMLDetailsElement>} */
  const closed = document.querySelectorAll(".fold:not([open]), .figures > * > details:not([open])");
  if (isPaper) openOnPaper.push(...closed);
  for (const section of openOnPaper) section.open = isPaper;
  if (!isPaper) openOnPaper.length = 0;
  redrawAll();
  if (isPaper) drawAll();
}

// Hide the values or, if they are hidden, clear the selection.
function onEscape(event) {
  if (event.key !== "Escape" || event.target.closest("input, select")) return;
  if (document.getElementById("tip").hidden) clearSelection();
  else showTip(null);
}

// Teams that share the grey have a colour while they are selected, also next to their names.
function colourNames() {
  /** @type {NodeListOf<HTMLElement>} */
  const marks = document.querySelectorAll("tr[data-team] .swatch");
  for (const mark of marks) mark.style.background = getTeamColour(mark.closest("tr").dataset.team);
}

function startCharts() {
  document.body.append(create("div", { id: "tip", role: "status", hidden: "" }));
  const main = document.querySelector("main");
  const marked = (event) => event.target.closest?.("[data-row]");
  main.addEventListener("pointermove", (event) => showTip(marked(event), event.clientX, event.clientY));
  main.addEventListener("pointerleave", () => showTip(null));
  main.addEventListener("click", (event) => selectMarked(marked(event)));
  main.addEventListener("toggle", activateTables, true);
  document.addEventListener("keydown", onEscape);
  onSelection(redrawAll);
  onSelection(colourNames);
  let width = main.clientWidth;
  new ResizeObserver(() => {
    if (medium.isPaper || width === main.clientWidth) return;
    width = main.clientWidth;
    redrawAll();
  }).observe(main);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  window.addEventListener("beforeprint", () => preparePrint(true));
  window.addEventListener("afterprint", () => preparePrint(false));
  document.querySelectorAll("section.chart").forEach(addChart);
  activateTables();
}

startCharts();
startSelection();
// For scripts that wait until everything is drawn.
window.page = { drawAll };
