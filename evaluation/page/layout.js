// The <svg> of a figure: a legend, and a grid of panels, one for each facet.

import { tagElement } from "./marks.js";
import { FONT_PX, shorten, svgElement, textWidth } from "./svg.js";

const TITLE_LINE_PX = 16;
const GAP_PX = 26;
const ROW_GAP_PX = 18;
const LEGEND_LINE_PX = 20;

// Lines of at most `width` pixels, two at most; the second one is shortened.
function wrap(text, width) {
  const words = text.split(" ");
  let first = words.shift();
  while (words.length && textWidth(`${first} ${words[0]}`, 600) <= width) first += ` ${words.shift()}`;
  return words.length ? [shorten(first, width), shorten(words.join(" "), width * 0.95)] : [shorten(first, width)];
}

// Columns of panels that fit, with rows of equal length.
function countColumns(count, plan, width) {
  const fitting = Math.floor((width - plan.labels + GAP_PX) / (plan.min + GAP_PX));
  const columns = Math.max(1, Math.min(count, fitting));
  return Math.ceil(count / Math.ceil(count / columns));
}

function drawLegend(svg, entries, width) {
  let [x, y, right] = [0, 0, 0];
  for (const entry of entries) {
    const text = shorten(entry.text, width - 40);
    const needed = 28 + textWidth(text) + 16;
    if (x > 0 && x + needed > width) [x, y] = [0, y + LEGEND_LINE_PX];
    const isLine = entry.dashes !== undefined;
    const mark = isLine
      ? { x1: x, x2: x + 20, y1: y + 9, y2: y + 9, stroke: entry.colour, "stroke-width": 2.5, "stroke-dasharray": entry.dashes }
      : { x: x + 6, y: y + 3, width: 12, height: 12, rx: 2, fill: entry.colour };
    svg.append(svgElement(isLine ? "line" : "rect", mark));
    svg.append(svgElement("text", { x: x + 26, y: y + 13, fill: "var(--ink)" }, text));
    x += needed;
    right = Math.max(right, x);
  }
  return { height: entries.length ? y + LEGEND_LINE_PX + 8 : 0, right };
}

function drawTitle(svg, facet, x, y, width) {
  const lines = facet.title ? wrap(facet.title, width) : [];
  const title = svgElement("g", { fill: "var(--ink)", "font-weight": 600, class: "panel-title" });
  lines.forEach((line, place) => title.append(svgElement("text", { x, y: y + 12 + place * TITLE_LINE_PX }, line)));
  if (facet.row) tagElement(title, facet.row);
  svg.append(title);
  return lines.length ? lines.length * TITLE_LINE_PX + 4 : 0;
}

function newSvg() {
  return svgElement("svg", { "font-size": FONT_PX, "font-family": getComputedStyle(document.body).fontFamily });
}

function setSize(svg, width, height) {
  const [wide, high] = [Math.ceil(width), Math.ceil(height)];
  for (const [key, value] of Object.entries({ width: wide, height: high, viewBox: `0 0 ${wide} ${high}` })) svg.setAttribute(key, value);
}

// Draws one row of panels with their titles from `top` on; returns where it ends.
function drawRow(svg, facets, plan, area, top) {
  let x = 0;
  const places = facets.map((facet, number) => {
    const labels = number === 0 ? plan.labels : 0;
    const place = { facet, labels, x, width: labels + area, title: drawTitle(svg, facet, x + labels, top, area) };
    x += place.width + GAP_PX;
    return place;
  });
  const title = Math.max(...places.map((place) => place.title));
  const heights = places.map(({ facet, labels, x: left, width }) => {
    const panel = plan.panel({ rows: facet.rows, width, labels, hasLabels: labels > 0 });
    nestPanel(svg, panel, left, top + title);
    return Number(panel.getAttribute("height"));
  });
  return { right: x - GAP_PX, bottom: top + title + Math.max(...heights) };
}

// Draws all panels: one <svg>, or one for each row of panels where pages of paper divide the figure. `plan` comes
// from kinds.js: widths of labels and panels, the legend, and a function that draws one panel.
export function layOut(facets, plan, width, divided) {
  const columns = countColumns(facets.length, plan, width);
  const area = Math.min(plan.max, Math.max(plan.min, (width - plan.labels - GAP_PX * (columns - 1)) / columns));
  const images = [newSvg()];
  const legend = drawLegend(images[0], plan.legend || [], width);
  let [top, right] = [legend.height, legend.right];
  for (let start = 0; start < facets.length; start += columns) {
    if (start > 0 && divided) {
      images.push(newSvg());
      top = 0;
    } else if (start > 0) top += plan.rowGap ?? ROW_GAP_PX;
    const row = drawRow(images.at(-1), facets.slice(start, start + columns), plan, area, top);
    [top, right] = [row.bottom, Math.max(right, row.right)];
    setSize(images.at(-1), right, top);
  }
  return images;
}

// Plot's own style sheet would come once for each panel; the page's says the same. Its names of marks are not for
// screen readers: the whole chart is one image.
function nestPanel(svg, panel, x, y) {
  panel.querySelectorAll("style").forEach((style) => style.remove());
  for (const marks of panel.querySelectorAll("[aria-label]")) {
    marks.setAttribute("data-marks", marks.getAttribute("aria-label"));
    marks.removeAttribute("aria-label");
  }
  panel.removeAttribute("class");
  panel.removeAttribute("style");
  for (const [key, value] of Object.entries({ x, y, overflow: "visible", "font-size": FONT_PX })) panel.setAttribute(key, value);
  panel.removeAttribute("font-family");
  svg.append(panel);
}
