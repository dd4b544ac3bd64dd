// Kinds of charts whose width depends on their content: matrices, and boxes of many cases in several rows.
/* global d3, Plot */

const LEVELS = [
  { below: 0.001, fill: "var(--level-3)", ink: "var(--back)", text: "p < 0.001" },
  { below: 0.01, fill: "var(--level-2)", ink: "var(--ink)", text: "p < 0.01" },
  { below: 0.05, fill: "var(--level-1)", ink: "var(--ink)", text: "p < 0.05" },
  { below: Infinity, fill: "var(--level-0)", ink: "var(--soft)", text: "not significant" },
];
const UNTESTED_SIGN = "\u00d7";
const SCHEMES = { light: ["#f1f5f9", "#0b5cad"], dark: ["#1b2430", "#8ec5ff"] };
const MIN_CELL_PX = 13;
const MAX_CELL_PX = 44;
const MAX_HEADING_PX = 140;
// A matrix should fit on a screen.
const MAX_MATRIX_PX = 880;
const BOX_STEP_PX = 14;

// Make a function that returns the fill of a value and the colour of the text on it.
function makeColouring(rows, chart) {
  if (chart.scale === "significance") return (value) => LEVELS.find((level) => value < level.below);
  const [low, high] = d3.extent(rows, (row) => row[chart.value]);
  const scale = d3.scaleLinear([low, low === high ? low + 1 : high], SCHEMES[isDark() ? "dark" : "light"]);
  return (value) => {
    const fill = scale(value);
    return { fill, ink: d3.lab(fill).l > 50 ? "#10161c" : "#ffffff" };
  };
}

function formatCell(row, chart) {
  if (chart.text && row[chart.text] !== undefined) return showValue(row[chart.text], Number.isInteger(row[chart.text]) ? 0 : 3);
  const value = row[chart.value];
  if (chart.scale === "significance") return value < 0.001 ? "<.001" : value >= 0.9995 ? "1" : value.toFixed(3).slice(1);
  return Number.isInteger(value) ? String(value) : formatFixed(value, 2);
}

function matrix(data, rows, chart, width) {
  const [across, down] = [chart.x, chart.y].map((key) => unique(rows.map((row) => row[key])));
  const ordered = across.length === down.length && across.every((name) => down.includes(name)) ? down : across;
  const labels = computeLabelSpace(down, width);
  const facets = chart.facet ? unique(rows.map((row) => row[chart.facet])).length : 1;
  const fill = makeColouring(rows, chart);
  const texts = rows.filter((row) => has(row, chart.value)).map((row) => formatCell(row, chart));
  const text = Math.max(0, ...texts.map((label) => getTextWidth(label))) + 6;
  const cell = computeCellSize({ width: width - labels - RIGHT_PX, columns: ordered.length, lines: down.length, isSquare: ordered === down, facets, text });
  const area = Math.ceil(cell.width * ordered.length) + RIGHT_PX;
  return {
    labels,
    min: area,
    max: area,
    legend: chart.scale === "significance" ? makeSignificanceLegend(rows, chart) : [],
    panel: (space) => drawMatrixPanel(space, chart, { across: ordered, down, cell, area, fill, textFits: text <= cell.width && cell.height >= 16 }),
  };
}

// A pair of teams that cannot be tested has no p.
const isUntested = (row, chart) => chart.scale === "significance" && row[chart.value] === null;

function makeSignificanceLegend(rows, chart) {
  const levels = LEVELS.map((level) => ({ text: level.text, colour: level.fill }));
  const untested = { text: "not tested: too few patients", colour: "none", sign: UNTESTED_SIGN };
  return rows.some((row) => isUntested(row, chart)) ? [...levels, untested] : levels;
}

// A matrix of pairs of teams has square cells, as large as fit on a screen. Other matrices have lines as high as text, and
// columns that share the width.
function computeCellSize({ width, columns, lines, isSquare, facets, text }) {
  const clampSize = (size) => Math.max(MIN_CELL_PX, Math.min(MAX_CELL_PX, size));
  if (isSquare) {
    const side = columns > 12 ? Math.min(width, MAX_MATRIX_PX) / columns : width / (Math.max(1, Math.min(facets, 3, Math.floor(width / 150))) * (columns + 1));
    return { width: clampSize(side), height: clampSize(side) };
  }
  const needed = Math.max(text, 20) * columns + 40;
  const inRow = Math.max(1, Math.min(facets, Math.floor(width / needed)));
  const ideal = (width / inRow - 40) / columns;
  return { width: Math.max(clampSize(ideal), Math.min(text, width / columns)), height: lines > 12 ? 19 : 30 };
}

function drawMatrixPanel(space, chart, { across, down, cell, area, fill, textFits }) {
  const shown = space.rows.filter((row) => has(row, chart.value));
  const untested = space.rows.filter((row) => isUntested(row, chart));
  const flat = across.every((name) => getTextWidth(String(name)) < cell.width - 6);
  const top = flat ? 22 : Math.min(MAX_HEADING_PX, Math.max(...across.map((name) => getTextWidth(String(name))))) + 12;
  const heads = across.map((value) => ({ value, [getHeadKey(chart.x)]: value }));
  const turned = flat ? { textAnchor: "middle", lineAnchor: "bottom", dy: -5 } : { rotate: -90, textAnchor: "start", dy: -8 };
  const place = { x: chart.x, y: chart.y };
  const fillOpacity = (row) => Math.max(getEmphasis(row), getEmphasis({ [getHeadKey(chart.x)]: row[chart.x] }));
  return Plot.plot({
    ...frame({ ...space, width: space.labels + area }, top + down.length * cell.height + 6, { marginTop: top, marginBottom: 6 }),
    x: { type: "band", domain: across, axis: null, padding: 0 },
    y: { type: "band", domain: down, axis: null, padding: 0 },
    marks: [
      Plot.cell(shown, { ...place, inset: 0.5, fill: (row) => fill(row[chart.value]).fill, fillOpacity, render: makeTagger(shown) }),
      textFits
        ? Plot.text(shown, { ...place, text: (row) => formatCell(row, chart), fill: (row) => fill(row[chart.value]).ink, fillOpacity, pointerEvents: "none" })
        : null,
      Plot.cell(untested, { ...place, inset: 0.5, fill: "transparent", stroke: "var(--line)", render: makeTagger(untested) }),
      Plot.text(untested, { ...place, text: () => UNTESTED_SIGN, fill: "var(--soft)", fillOpacity, pointerEvents: "none" }),
      space.hasLabels ? drawCategoryLabels(down, chart.y, { ...space, step: cell.height }) : null,
      Plot.text(heads, { x: "value", frameAnchor: "top", text: (row) => shorten(row.value, MAX_HEADING_PX), fill: "var(--ink)", ...turned, render: makeTagger(heads) }),
    ],
  });
}

// The columns of a matrix of pairs are also teams, under the key `than`.
function getHeadKey(key) {
  return key === "than" ? "team" : key;
}

function boxes(data, rows, chart, width) {
  return chart.orientation === "vertical" ? drawVerticalBoxes(data, rows, chart, width) : drawHorizontalBoxes(data, rows, chart, width);
}

function drawBoxMarks(rows, chart, isUpright, thickness) {
  const shown = rows.filter((row) => has(row, chart.median));
  const style = { render: makeTagger(shown) };
  const [along, across] = isUpright ? ["y", "x"] : ["x", "y"];
  const span = (low, high) => ({ [across]: chart.category, [`${along}1`]: low, [`${along}2`]: high });
  const at = (key) => ({ [across]: chart.category, [along]: key });
  const [rule, bar, tick] = isUpright ? [Plot.ruleX, Plot.barY, Plot.tickY] : [Plot.ruleY, Plot.barX, Plot.tickX];
  const inset = isUpright ? { insetLeft: thickness, insetRight: thickness } : { insetTop: thickness, insetBottom: thickness };
  // The values beyond the whiskers.
  const outliers = shown.flatMap((row) => unique(row[chart.outliers] ?? []).map((outlier) => ({ ...row, outlier })));
  const marked = chart.mark ? rows.filter((row) => has(row, chart.mark)) : [];
  const means = chart.mean ? shown.filter((row) => has(row, chart.mean)) : [];
  return [
    rule(shown, { ...span(chart.low, chart.high), stroke: getRowColour, strokeOpacity: getEmphasis, ...style }),
    Plot.dot(outliers, { ...at("outlier"), r: 2.5, fill: getRowColour, fillOpacity: (row) => 0.85 * getEmphasis(row), render: makeTagger(outliers) }),
    bar(shown, { ...span(chart.q1, chart.q3), fill: getRowColour, fillOpacity: getEmphasis, ...inset, ...style }),
    tick(shown, { ...at(chart.median), stroke: "var(--back)", strokeWidth: 2, ...inset, ...style }),
    Plot.dot(means, { ...at(chart.mean), r: 2.6, fill: "var(--back)", stroke: "var(--ink)", strokeOpacity: getEmphasis, render: makeTagger(means) }),
    ...(marked.length ? drawNamedMarks(marked, chart, at(chart.mark)) : []),
  ];
}

// Draw further values next to the boxes with their names, such as the values of entries out of competition.
function drawNamedMarks(marked, chart, place) {
  return [
    Plot.dot(marked, { ...place, r: 5, symbol: "triangle", fill: getRowColour, stroke: "var(--ink)", render: makeTagger(marked) }),
    Plot.text(marked, { ...place, text: chart.name, dy: -11, fill: "var(--ink)", render: makeTagger(marked) }),
  ];
}

function drawHorizontalBoxes(data, rows, chart, width) {
  const plan = planCategories(data, rows, { ...chart, y: chart.category }, width, [chart.low, chart.high, chart.median, chart.outliers, chart.mark]);
  return { ...plan, panel: (space) => plan.panel(space, drawBoxMarks(space.rows, chart, false, plan.step > 20 ? 4 : 2)) };
}

// Draw boxes side by side, in several rows if they do not fit into the width.
function drawVerticalBoxes(data, rows, chart, width) {
  const categories = unique(rows.map((row) => row[chart.category]));
  const [labels, available] = [NUMBERS_PX, width - NUMBERS_PX - 20];
  const inRow = Math.ceil(categories.length / Math.ceil((categories.length * BOX_STEP_PX) / available));
  const spread = Math.min(60, available / inRow);
  const domain = makeSharedDomain(rows, [chart.low, chart.high, chart.median, chart.outliers, chart.mark], chart);
  const under = Math.min(110, Math.max(...categories.map((name) => getTextWidth(String(name))))) + 16;
  const area = spread * inRow + 18;
  return {
    labels,
    min: area,
    max: area,
    inRow,
    panel(space) {
      const here = unique(space.rows.map((row) => row[chart.category]));
      const names = here.map((value) => ({ value, [chart.category]: value }));
      const turned = { rotate: -90, textAnchor: "end", dy: 8, fill: "var(--ink)", render: makeTagger(names) };
      return Plot.plot({
        ...frame({ ...space, width: labels + spread * here.length + 18 }, 176 + under, { marginTop: 10, marginBottom: under }),
        x: { type: "band", domain: here, axis: null, padding: 0 },
        y: { domain: domain(space.rows) },
        marks: [
          ...drawLeftAxis(null),
          ...drawBoxMarks(space.rows, chart, true, 2.5),
          Plot.text(names, { x: "value", frameAnchor: "bottom", text: (row) => shorten(row.value, 100), ...turned }),
        ],
      });
    },
  };
}
