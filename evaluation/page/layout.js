// One <svg> for a figure: a legend, and a grid of panels, one for each facet.
"use strict";

(function (page) {
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const FONT_PX = 12;
  const TITLE_LINE_PX = 16;
  const GAP_PX = 26;
  const LEGEND_LINE_PX = 20;
  const canvas = document.createElement("canvas").getContext("2d");

  page.textWidth = function (text, weight = 400) {
    canvas.font = `${weight} ${FONT_PX}px ${getComputedStyle(document.body).fontFamily}`;
    return canvas.measureText(text).width;
  };

  // The text, or its beginning with an ellipsis.
  page.shorten = function (text, width) {
    const whole = String(text);
    if (page.textWidth(whole) <= width) return whole;
    let length = whole.length;
    while (length > 1 && page.textWidth(`${whole.slice(0, length)}\u2026`) > width) length -= 1;
    return `${whole.slice(0, length)}\u2026`;
  };

  page.svgElement = function (name, attributes = {}, text = "") {
    const element = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };

  // Lines of at most `width` pixels, two at most; the second one is shortened.
  function wrap(text, width) {
    const words = text.split(" ");
    let first = words.shift();
    while (words.length && page.textWidth(`${first} ${words[0]}`, 600) <= width) first += ` ${words.shift()}`;
    return words.length ? [page.shorten(first, width), page.shorten(words.join(" "), width * 0.95)] : [page.shorten(first, width)];
  }

  // Columns of panels that fit, with rows of equal length.
  function countColumns(count, plan, width) {
    const other = plan.repeatLabels ? plan.labels : 0;
    const fitting = Math.floor((width - plan.labels + other + GAP_PX) / (plan.min + other + GAP_PX));
    const columns = Math.max(1, Math.min(count, fitting));
    return Math.ceil(count / Math.ceil(count / columns));
  }

  function drawLegend(svg, entries, width) {
    let [x, y] = [0, 0];
    for (const entry of entries) {
      const text = page.shorten(entry.text, width - 40);
      const needed = 28 + page.textWidth(text) + 16;
      if (x > 0 && x + needed > width) [x, y] = [0, y + LEGEND_LINE_PX];
      const isLine = entry.dashes !== undefined;
      const mark = isLine
        ? { x1: x, x2: x + 20, y1: y + 9, y2: y + 9, stroke: entry.colour, "stroke-width": 2.5, "stroke-dasharray": entry.dashes }
        : { x: x + 6, y: y + 3, width: 12, height: 12, rx: 2, fill: entry.colour };
      svg.append(page.svgElement(isLine ? "line" : "rect", mark));
      svg.append(page.svgElement("text", { x: x + 26, y: y + 13, fill: "var(--ink)" }, text));
      x += needed;
    }
    return entries.length ? y + LEGEND_LINE_PX + 8 : 0;
  }

  function drawTitle(svg, facet, x, y, width) {
    const lines = facet.title ? wrap(facet.title, width) : [];
    lines.forEach((line, place) => {
      const attributes = { x, y: y + 12 + place * TITLE_LINE_PX, fill: "var(--ink)", "font-weight": 600, class: "panel-title" };
      const text = page.svgElement("text", attributes, line);
      if (facet.row) page.tagElement(text, facet.row);
      svg.append(text);
    });
    return lines.length ? lines.length * TITLE_LINE_PX + 4 : 0;
  }

  // `plan` comes from kinds.js: widths of labels and panels, the legend, and a function that draws one panel.
  page.layOut = function (facets, plan, width) {
    const columns = countColumns(facets.length, plan, width);
    const extra = plan.repeatLabels ? plan.labels * (columns - 1) : 0;
    const area = Math.min(plan.max, Math.max(plan.min, (width - plan.labels - extra - GAP_PX * (columns - 1)) / columns));
    const svg = page.svgElement("svg", { "font-size": FONT_PX, "font-family": getComputedStyle(document.body).fontFamily });
    let y = drawLegend(svg, plan.legend || [], width);
    let right = 0;
    for (let start = 0; start < facets.length; start += columns) {
      let x = 0;
      let bottom = y;
      const titles = facets.slice(start, start + columns).map((facet, place) => {
        const labels = place === 0 || plan.repeatLabels ? plan.labels : 0;
        const position = { facet, labels, x, width: labels + area };
        position.title = drawTitle(svg, facet, x + labels, y, area);
        x += position.width + GAP_PX;
        return position;
      });
      const title = Math.max(...titles.map((one) => one.title));
      for (const one of titles) {
        const panel = plan.panel({ rows: one.facet.rows, width: one.width, labels: one.labels, hasLabels: one.labels > 0 });
        page.nest(svg, panel, one.x, y + title);
        bottom = Math.max(bottom, y + title + Number(panel.getAttribute("height")));
        right = Math.max(right, one.x + one.width);
      }
      y = bottom + (plan.rowGap ?? 18);
    }
    y -= plan.rowGap ?? 18;
    const [wide, high] = [Math.ceil(Math.max(right, plan.legend?.length ? Math.min(width, 300) : 0)), Math.ceil(y)];
    for (const [key, value] of Object.entries({ width: wide, height: high, viewBox: `0 0 ${wide} ${high}` })) svg.setAttribute(key, value);
    return svg;
  };

  // Plot's own style sheet would come once for each panel; the page's says the same.
  page.nest = function (svg, panel, x, y) {
    panel.querySelectorAll("style").forEach((style) => style.remove());
    panel.removeAttribute("class");
    panel.removeAttribute("style");
    for (const [key, value] of Object.entries({ x, y, overflow: "visible", "font-size": FONT_PX })) panel.setAttribute(key, value);
    panel.removeAttribute("font-family");
    svg.append(panel);
  };
})(window.page);
