// Parts of charts: colours, emphasis of the selection, axes, labels of categories, domains.
/* global Plot */

// Colours of series that are not teams; they differ from the colours of teams.
const PALETTE = [1, 2, 3, 4, 5, 6].map((number) => `var(--series-${number})`);
// Series differ by these as well as by colour: some colours look alike to colour-blind readers and on grey paper.
const DASHES = ["none", "7 3", "2 3", "10 3 2 3", "14 4"];
const SYMBOLS = ["circle", "square", "triangle", "diamond", "star"];
const FADED = 0.22;
const MANY = 16;

// The medium of the page: a screen, or paper with light colours.
const medium = { isPaper: false };
const isDark = () => !medium.isPaper && window.matchMedia("(prefers-color-scheme: dark)").matches;

const unique = (values) => [...new Set(values.filter((value) => value !== null && value !== undefined))];
const has = (row, ...keys) => keys.every((key) => typeof row[key] === "number");

// Return a team's own colour. Beyond ten teams, it is grey, or a colour of the series while the team is selected.
function getTeamColour(team) {
  const own = (name) => COLOURS.teams[name] || COLOURS.neutral;
  if (own(team) !== COLOURS.neutral || !isSelected("team", team)) return own(team);
  const grey = listSelected("team").filter((name) => own(name) === COLOURS.neutral);
  return PALETTE[grey.indexOf(team) % PALETTE.length];
}

// Return the colour of the row's team, or the colour of bars.
const getRowColour = (row) => (typeof row.team === "string" ? getTeamColour(row.team) : "var(--bar)");

// Return the colour of a row's series; a series of teams has the teams' colours.
function getSeriesColour(row, key, series) {
  const apart = key && key !== "team" && series.length > 1;
  return apart ? PALETTE[series.indexOf(row[key]) % PALETTE.length] : getRowColour(row);
}

// Return the index of a row's dashes and symbol. It follows from the colour of a team, so it is the same in all charts;
// teams that share the grey have index 0.
function getStyleNumber(row, key, series) {
  if (key !== "team") return Math.max(0, series.indexOf(row[key]));
  const colour = getTeamColour(row.team);
  return Math.max(0, COLOURS.leading.indexOf(colour), PALETTE.indexOf(colour));
}

const getDash = (row, key, series) => DASHES[getStyleNumber(row, key, series) % DASHES.length];
const getSymbol = (row, key, series) => SYMBOLS[getStyleNumber(row, key, series) % SYMBOLS.length];

const getEmphasis = (row) => (isConcerned(row) && !matchesSelection(row) ? FADED : 1);

// Selected rows are drawn last, above the other rows. Teams with their own colour are drawn above grey teams.
const sortSelectedLast = (rows) => [...rows].sort((a, b) => getLayer(a) - getLayer(b));

function getLayer(row) {
  const isGrey = typeof row.team === "string" && getTeamColour(row.team) === COLOURS.neutral;
  return 2 * getEmphasis(row) - (isGrey ? 1 : 0);
}

function tagElement(element, row) {
  element.pageRow = row;
  element.setAttribute("data-row", row.index ?? "");
  if (KEYS.some((key) => typeof row[key] === "string")) element.classList.add("selects");
}

// Make a render function that ties each drawn element to its row, for tooltips and clicks.
function makeTagger(rows) {
  return (index, scales, values, dimensions, context, next) => {
    const group = next(index, scales, values, dimensions, context);
    for (const child of group?.children ?? []) {
      const bound = child.__data__;
      const row = rows[Array.isArray(bound) ? bound[0] : bound];
      if (row) tagElement(child, row);
    }
    return group;
  };
}

// Return the height of a line in pixels; many lines are closer to each other.
const getLineStep = (count) => (count > MANY ? 17 : count > 6 ? 22 : 28);

// Space for the numbers of an axis at the left.
const NUMBERS_PX = 38;

// Space at the right of a panel for half of the last number of its axis, such as 1.00.
const RIGHT_PX = 15;

// Compute the space for labels at the left, at most a third of a phone's width and a fifth of a page's.
function computeLabelSpace(labels, width) {
  const longest = Math.max(20, ...labels.map((label) => getTextWidth(String(label), 700)));
  return Math.ceil(Math.min(longest, Math.min(210, width * (width > 600 ? 0.2 : 0.32)))) + 12;
}

// Long names have two lines where the lines of the chart are high enough.
const TWO_LINES_PX = 28;
function fitLabel(name, space) {
  const width = space.labels - 12;
  const isLong = getTextWidth(String(name)) > width;
  return isLong && space.step >= TWO_LINES_PX ? wrapText(String(name), width).join("\n") : shorten(name, width);
}

// Draw the name of each line at its left; a click selects a team, centre or case. `space.step` is the height of a line.
function drawCategoryLabels(categories, key, space, options = {}) {
  const rows = categories.map((value) => ({ value, [key]: value }));
  return Plot.text(rows, {
    y: "value",
    text: (row) => fitLabel(row.value, space),
    frameAnchor: "left",
    textAnchor: "end",
    dx: -8,
    fill: "var(--ink)",
    fillOpacity: (row) => (getEmphasis(row) < 1 ? 0.6 : 1),
    fontWeight: KEYS.includes(key) && rows.length === 1 && isSelected(key, rows[0].value) ? 700 : 400,
    render: makeTagger(rows),
    ...options,
  });
}

function frame(space, height, more = {}) {
  return {
    width: space.width,
    height,
    marginLeft: space.labels || 6,
    marginRight: RIGHT_PX,
    marginTop: 6,
    marginBottom: 40,
    color: { type: "identity" },
    opacity: { type: "identity" },
    r: { type: "identity" },
    style: { fontSize: `${FONT_PX}px`, fontFamily: "inherit", overflow: "visible" },
    ...more,
  };
}

function drawBottomAxis(space, label, options = {}) {
  const area = space.width - (space.labels || 6) - RIGHT_PX;
  const ticks = Math.max(2, Math.min(8, Math.floor(area / 62)));
  const common = { fontSize: 12, tickSize: 0, tickPadding: 6, color: "var(--soft)", labelArrow: "none", labelAnchor: "center" };
  return [
    Plot.gridX({ ticks: options.ticks ?? ticks, stroke: "var(--line)", strokeOpacity: 1 }),
    Plot.axisX({ ticks, ...common, label: shorten(label, area), labelOffset: 36, ...options }),
  ];
}

function drawLeftAxis(label, options = {}) {
  const common = { fontSize: 12, tickSize: 0, tickPadding: 6, color: "var(--soft)", labelArrow: "none" };
  return [
    Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
    Plot.axisY({ ticks: 5, ...common, label: null, ...options }),
    label ? Plot.text([label], { frameAnchor: "top-left", textAnchor: "start", dx: -30, dy: -18, fill: "var(--soft)" }) : null,
  ];
}

// Compute a domain that contains every value and a margin, but stays within 0 to 1 if all values do.
function computeDomain(values, { zero = false } = {}) {
  const numbers = values.filter((value) => typeof value === "number");
  if (numbers.length === 0) return [0, 1];
  let [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const [floor, ceiling] = [low >= 0 ? 0 : -Infinity, low >= 0 && high <= 1 ? 1 : Infinity];
  if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  const margin = 0.04 * (high - low) || 0.05 * Math.abs(high) || 0.5;
  return [Math.max(floor, low - (zero && low === 0 ? 0 : margin)), Math.min(ceiling, high + margin)];
}

// List the values of some columns in all rows; a cell may be a list of values.
const listValues = (rows, keys) => rows.flatMap((row) => keys.filter(Boolean).flatMap((key) => row[key]));

// Fractions have the same domain in all panels, so that the panels can be compared; other units have a domain for each
// panel.
function makeSharedDomain(rows, keys, chart, options) {
  if (chart.domain) return () => chart.domain;
  const all = computeDomain(listValues(rows, keys), options);
  if (all[0] >= -1 && all[1] <= 1) return () => all;
  return (panelRows) => computeDomain(listValues(panelRows, keys), options);
}

// Make the legend of a series. Teams without their own colour share one entry. Lines are shown with their dashes, and
// points with their symbols.
function makeLegend(rows, key, { hasDashes = false, hasSymbols = false } = {}) {
  const series = unique(rows.map((row) => row[key]));
  const isGrey = (value) => key === "team" && getTeamColour(value) === COLOURS.neutral;
  const makeEntry = (value, text) => {
    const row = { [key]: value };
    const dashes = hasDashes ? getDash(row, key, series) : undefined;
    const symbol = hasSymbols ? getSymbol(row, key, series) : undefined;
    return { text, colour: getSeriesColour(row, key, series), dashes, symbol };
  };
  const entries = series.filter((value) => !isGrey(value)).map((value) => makeEntry(value, String(value)));
  const others = series.filter(isGrey);
  return others.length ? [...entries, makeEntry(others[0], `${others.length} other teams`)] : entries;
}
