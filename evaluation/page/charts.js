// The life of a chart: drawn when it comes into view or the browser is idle, again when the selection, the width or the
// colour scheme changes, and at the width of paper before printing.
"use strict";

(function (page) {
  const PAPER_PX = 686;
  const charts = [];
  const waiting = new Set();
  let printing = false;

  page.isDark = () => !printing && window.matchMedia("(prefers-color-scheme: dark)").matches;

  function facetsOf(data, rows, chart, plan) {
    if (plan.inRow) return d3.range(0, rows.length, plan.inRow).map((start) => ({ title: "", rows: rows.slice(start, start + plan.inRow) }));
    if (!chart.facet) return [{ title: "", rows }];
    return page.unique(rows.map((row) => row[chart.facet])).map((value) => ({
      title: String(value),
      rows: rows.filter((row) => row[chart.facet] === value),
      row: page.keys.includes(chart.facet) ? { [chart.facet]: value } : null,
    }));
  }

  // Panels of what is selected; all of them if nothing is, or if none would be left.
  function selectedRows(rows, chart) {
    if (!page.keys.includes(chart.facet)) return rows;
    const left = rows.filter((row) => page.matches({ [chart.facet]: row[chart.facet] }));
    return left.length ? left : rows;
  }

  function draw(one) {
    waiting.delete(one);
    const width = printing ? PAPER_PX : one.drawing.clientWidth;
    if (!width) return;
    const { data } = one;
    const rows = selectedRows(one.rows, data.chart);
    const plan = page.kinds[data.chart.kind](data, rows, data.chart, width);
    const images = page.layOut(facetsOf(data, rows, data.chart, plan), plan, width, printing);
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
    const name = section.id;
    const save = (text, action) => {
      const button = page.element("button", { type: "button", "aria-label": `Save ${one.title} as ${text}` }, text);
      button.addEventListener("click", action);
      return button;
    };
    const details = page.element("details", {}, page.element("summary", {}, "Figures as a table"));
    details.addEventListener("toggle", () => showTable(details, one), { once: true });
    const tools = page.element(
      "div",
      { class: "tools" },
      save("SVG", () => page.save(`${name}.svg`, "image/svg+xml", page.standaloneSvg(one.drawing.firstElementChild))),
      save("CSV", () => page.save(`${name}.csv`, "text/csv", page.csv(one.data))),
      details,
    );
    one.drawing.after(tools);
  }

  function showTable(details, one) {
    const scroller = page.tableOf(one.data, one.title);
    details.append(scroller);
    page.activateTable(scroller.firstElementChild);
  }

  function addChart(section) {
    const data = page.readData(section.querySelector('script[type="application/json"]'));
    if (!page.kinds[data.chart.kind]) throw new Error(`${section.id}: unknown kind of chart ${data.chart.kind}`);
    const drawing = page.element("div", { class: "drawing" });
    const title = section.querySelector("h3").textContent;
    const about = section.querySelector(".about").textContent;
    const label = `${title}. ${about} The figures follow as a table.`;
    const one = { data, rows: page.rowsOf(data), drawing, title, label };
    section.querySelector(".about").after(drawing);
    addTools(section, one);
    charts.push(one);
  }

  function showTip(event) {
    const tip = document.getElementById("tip");
    const marked = event.target.closest?.("[data-row]");
    const section = marked?.closest("section.chart");
    tip.hidden = !section || marked.pageRow.index === undefined;
    if (tip.hidden) return;
    tip.textContent = page.describe(charts.find((one) => section.contains(one.drawing)).data, marked.pageRow);
    const [x, y] = [event.clientX + 14, event.clientY + 14];
    tip.style.left = `${Math.min(x, window.innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${y + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : y}px`;
  }

  function selectMarked(event) {
    const row = event.target.closest?.("[data-row]")?.pageRow;
    const key = row && ["case", ...page.keys].find((one) => typeof row[one] === "string");
    if (key) page.toggle(key, row[key]);
  }

  function print(starts) {
    printing = starts;
    charts.forEach(draw);
  }

  page.startCharts = function () {
    document.querySelectorAll("section.chart").forEach(addChart);
    document.body.append(page.element("div", { id: "tip", hidden: "" }));
    const main = document.querySelector("main");
    main.addEventListener("pointermove", showTip);
    main.addEventListener("pointerleave", showTip);
    main.addEventListener("click", selectMarked);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") document.getElementById("tip").hidden = true;
    });
    page.onSelection(redrawAll);
    new ResizeObserver(() => !printing && charts.some((one) => one.drawing.clientWidth !== one.width) && redrawAll()).observe(main);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
    document.addEventListener("scroll", () => [...waiting].filter(inView).forEach(draw), { passive: true });
    window.addEventListener("beforeprint", () => print(true));
    window.addEventListener("afterprint", () => print(false));
    redrawAll();
  };
  page.isDrawn = () => waiting.size === 0 && charts.every((one) => one.drawing.firstElementChild);
})(window.page);
