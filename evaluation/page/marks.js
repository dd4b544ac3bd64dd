// Parts of charts: colours, emphasis of what is selected, axes, labels of categories, domains.
"use strict";

(function (page) {
  // Of series that are no teams: other colours than those of teams.
  const PALETTE = [1, 2, 3, 4, 5, 6].map((number) => `var(--series-${number})`);
  const FADED = 0.22;
  const MANY = 16;

  page.unique = (values) => [...new Set(values.filter((value) => value !== null && value !== undefined))];
  page.has = (row, ...keys) => keys.every((key) => typeof row[key] === "number");

  page.colourOfTeam = function (team) {
    const own = page.colours.teams[team] || page.colours.neutral;
    return own === page.colours.neutral && page.isSelected("team", team) ? "var(--accent)" : own;
  };

  // The team's colour, or that of bars.
  page.colourOf = (row) => (typeof row.team === "string" ? page.colourOfTeam(row.team) : "var(--bar)");

  // The colour of a row's series; a series of teams has the teams' colours.
  page.seriesColour = function (row, key, series) {
    const apart = key && key !== "team" && series.length > 1;
    return apart ? PALETTE[series.indexOf(row[key]) % PALETTE.length] : page.colourOf(row);
  };

  page.emphasis = (row) => (page.concerns(row) && !page.matches(row) ? FADED : 1);

  // What is selected is drawn last, above the rest; teams with a colour of their own lie above grey ones.
  page.selectedLast = (rows) => [...rows].sort((a, b) => layer(a) - layer(b));

  function layer(row) {
    const isGrey = typeof row.team === "string" && page.colourOfTeam(row.team) === page.colours.neutral;
    return 2 * page.emphasis(row) - (isGrey ? 1 : 0);
  }

  page.tagElement = function (element, row) {
    element.pageRow = row;
    element.setAttribute("data-row", row.index ?? "");
    const key = page.keys.find((one) => typeof row[one] === "string");
    if (key) element.classList.add("selects");
  };

  // Ties each drawn element to its row, for tooltips and clicks.
  page.tagged = function (rows) {
    return (index, scales, values, dimensions, context, next) => {
      const group = next(index, scales, values, dimensions, context);
      for (const child of group?.children ?? []) {
        const bound = child.__data__;
        const row = rows[Array.isArray(bound) ? bound[0] : bound];
        if (row) page.tagElement(child, row);
      }
      return group;
    };
  };

  // Height of a line in pixels: lines come closer where there are many.
  page.lineStep = (count) => (count > MANY ? 17 : count > 6 ? 22 : 28);

  // Space for the numbers of an axis at the left.
  page.NUMBERS_PX = 38;

  // Space at the right of a panel for half of the last number of its axis, such as 1.00.
  page.RIGHT_PX = 15;

  // Space for labels at the left, at most a third of a phone's width and a fifth of a page's.
  page.labelSpace = function (labels, width) {
    const longest = Math.max(20, ...labels.map((label) => page.textWidth(String(label), 700)));
    return Math.ceil(Math.min(longest, Math.min(210, width * (width > 600 ? 0.2 : 0.32)))) + 12;
  };

  // Names at the left of the lines they label; a click selects a team, centre or case.
  page.categoryLabels = function (categories, key, space, options = {}) {
    const rows = categories.map((value) => ({ value, [key]: value }));
    return Plot.text(rows, {
      y: "value",
      text: (row) => page.shorten(row.value, space.labels - 12),
      frameAnchor: "left",
      textAnchor: "end",
      dx: -8,
      fill: "var(--ink)",
      fillOpacity: (row) => (page.emphasis(row) < 1 ? 0.6 : 1),
      fontWeight: page.keys.includes(key) && rows.length === 1 && page.isSelected(key, rows[0].value) ? 700 : 400,
      ariaLabel: "category-labels",
      render: page.tagged(rows),
      ...options,
    });
  };

  page.frame = function (space, height, more = {}) {
    return {
      width: space.width,
      height,
      marginLeft: space.labels || 6,
      marginRight: page.RIGHT_PX,
      marginTop: 6,
      marginBottom: 40,
      color: { type: "identity" },
      opacity: { type: "identity" },
      r: { type: "identity" },
      ...more,
    };
  };

  page.bottomAxis = function (space, label, options = {}) {
    const area = space.width - (space.labels || 6) - page.RIGHT_PX;
    const ticks = Math.max(2, Math.min(8, Math.floor(area / 62)));
    const common = { fontSize: 12, tickSize: 0, tickPadding: 6, color: "var(--soft)", labelArrow: "none", labelAnchor: "center" };
    return [
      Plot.gridX({ ticks: options.ticks ?? ticks, stroke: "var(--line)", strokeOpacity: 1 }),
      Plot.axisX({ ticks, ...common, label: page.shorten(label, area), labelOffset: 36, ...options }),
    ];
  };

  page.leftAxis = function (label, options = {}) {
    const common = { fontSize: 12, tickSize: 0, tickPadding: 6, color: "var(--soft)", labelArrow: "none" };
    return [
      Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
      Plot.axisY({ ticks: 5, ...common, label: null, ...options }),
      label ? Plot.text([label], { frameAnchor: "top-left", textAnchor: "start", dx: -30, dy: -18, fill: "var(--soft)" }) : null,
    ];
  };

  // A domain that holds every value with a margin, and does not leave 0 to 1 if the values do not.
  page.domainOf = function (values, { zero = false } = {}) {
    const numbers = values.filter((value) => typeof value === "number");
    if (numbers.length === 0) return [0, 1];
    let [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    const [floor, ceiling] = [low >= 0 ? 0 : -Infinity, low >= 0 && high <= 1 ? 1 : Infinity];
    if (zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    const margin = 0.04 * (high - low) || 0.05 * Math.abs(high) || 0.5;
    return [Math.max(floor, low - (zero && low === 0 ? 0 : margin)), Math.min(ceiling, high + margin)];
  };

  // The values of some columns in all rows.
  page.valuesOf = (rows, keys) => rows.flatMap((row) => keys.filter(Boolean).map((key) => row[key]));

  // Fractions of all panels share a domain, so that panels compare; other units get one each.
  page.sharedDomain = function (rows, keys, chart, options) {
    if (chart.domain) return () => chart.domain;
    const all = page.domainOf(page.valuesOf(rows, keys), options);
    if (all[0] >= -1 && all[1] <= 1) return () => all;
    return (panelRows) => page.domainOf(page.valuesOf(panelRows, keys), options);
  };

  // The legend of a series; teams without a colour of their own share one entry.
  page.legendOf = function (rows, key, lines, dashes = () => "none") {
    const series = page.unique(rows.map((row) => row[key]));
    const entry = (value) => {
      const row = rows.find((one) => one[key] === value);
      return { text: String(value), colour: page.seriesColour(row, key, series), ...(lines ? { dashes: dashes(value) } : {}) };
    };
    const shown = series.filter((value) => key !== "team" || page.colourOfTeam(value) !== page.colours.neutral);
    const others = series.length - shown.length;
    const entries = shown.map(entry);
    if (others) entries.push({ text: `${others} other teams`, colour: page.colours.neutral, ...(lines ? { dashes: "none" } : {}) });
    return entries;
  };
})(window.page);
