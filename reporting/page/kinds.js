// The kinds of charts: each returns the plan of a figure for charts.js.
/* global d3, Plot */

const titleOf = (data, key) => data.columns[key]?.title ?? "";

// A plan of panels with one line for each category.
function linesOfCategories(data, rows, chart, width, keys, options = {}) {
  const categories = unique(rows.map((row) => row[chart.y]));
  const labels = labelSpace(categories, width);
  const isLong = categories.length <= MANY && categories.some((name) => textWidth(String(name)) > labels - 12);
  const step = Math.max(lineStep(categories.length), options.step ?? 0, isLong ? TWO_LINES_PX : 0);
  const domain = sharedDomain(rows, keys, chart, options);
  return {
    categories,
    step,
    labels,
    min: 150,
    max: 1000,
    panel(space, marks, more = {}) {
      return Plot.plot({
        ...frame(space, categories.length * step + 50),
        x: { domain: domain(space.rows), ...more.x },
        y: { type: "band", domain: categories, axis: null, ...more.y },
        marks: [
          ...bottomAxis(space, titleOf(data, chart.x), more.axis),
          ...marks,
          space.hasLabels ? categoryLabels(categories, chart.y, { ...space, step }, more.labels) : null,
        ],
      });
    },
  };
}

// The declared domain is left out where the values use less than half of it, so that small differences can be read.
function closeUp(rows, chart) {
  const [low, high] = domainOf(valuesOf(rows, [chart.x, chart.low, chart.high]));
  const isSmall = chart.domain && high - low < (chart.domain[1] - chart.domain[0]) / 2;
  return isSmall ? { ...chart, domain: undefined } : chart;
}

function intervals(data, rows, chart, width) {
  const plan = linesOfCategories(data, rows, closeUp(rows, chart), width, [chart.x, chart.low, chart.high]);
  return {
    ...plan,
    panel(space) {
      const shown = selectedLast(space.rows);
      const ranges = shown.filter((row) => has(row, chart.low, chart.high));
      const points = shown.filter((row) => has(row, chart.x));
      const style = (list) => ({ strokeOpacity: emphasis, fillOpacity: emphasis, render: tagged(list) });
      return plan.panel(space, [
        Plot.ruleY(ranges, { y: chart.y, x1: chart.low, x2: chart.high, stroke: colourOf, strokeWidth: 2, ...style(ranges) }),
        Plot.dot(points, { y: chart.y, x: chart.x, fill: colourOf, r: 4, ...style(points) }),
      ]);
    },
  };
}

function bars(data, rows, chart, width) {
  const series = chart.series ? unique(rows.map((row) => row[chart.series])) : [null];
  const count = unique(rows.map((row) => row[chart.y])).length;
  const step = series.length * (count > 16 ? 5 : 9) + 5;
  const plan = linesOfCategories(data, rows, chart, width, [chart.x], { zero: true, step });
  const height = 0.8 / series.length;
  const top = (row) => plan.categories.indexOf(row[chart.y]) + 0.1 + height * Math.max(0, series.indexOf(row[chart.series]));
  return {
    ...plan,
    legend: chart.series && chart.series !== chart.y ? legendOf(rows, chart.series) : [],
    panel(space) {
      const shown = space.rows.filter((row) => has(row, chart.x));
      const fill = (row) => seriesColour(row, chart.series, series);
      return plan.panel(
        space,
        [
          Plot.rect(shown, { x1: 0, x2: chart.x, y1: top, y2: (row) => top(row) + height, fill, fillOpacity: emphasis, render: tagged(shown) }),
          Plot.ruleX([0], { stroke: "var(--soft)" }),
        ],
        {
          y: { type: "linear", domain: [0, count], range: [6, 6 + count * plan.step] },
          labels: { y: (row) => plan.categories.indexOf(row.value) + 0.5 },
        },
      );
    },
  };
}

function blobs(data, rows, chart, width) {
  const plan = linesOfCategories(data, rows, chart, width, [chart.x]);
  const last = Math.max(1, ...rows.map((row) => row[chart.x] ?? 1));
  return {
    ...plan,
    min: Math.max(150, Math.min((width > 700 ? 9 : 5) * last, 300)),
    panel(space) {
      const shown = selectedLast(space.rows.filter((row) => has(row, chart.x, chart.size)));
      const ranges = chart.low ? [...new Map(shown.map((row) => [row[chart.y], row])).values()].filter((row) => has(row, chart.low, chart.high)) : [];
      const area = (space.width - space.labels - 18) / (last + 0.5);
      const radius = Math.min(plan.step * 0.62, Math.max(area, 7) * 0.62);
      const style = (list) => ({ fillOpacity: emphasis, strokeOpacity: emphasis, render: tagged(list) });
      return plan.panel(
        space,
        [
          Plot.ruleY(ranges, { y: chart.y, x1: chart.low, x2: chart.high, stroke: "var(--soft)", strokeWidth: 1, ...style(ranges) }),
          Plot.dot(shown, { y: chart.y, x: chart.x, r: (row) => Math.max(0.8, radius * Math.sqrt(row[chart.size])), fill: colourOf, ...style(shown) }),
        ],
        { x: { domain: [0.4, last + 0.6] }, axis: { ticks: wholeTicks(last, space.width - space.labels), tickFormat: "d" } },
      );
    },
  };
}

// 1 and multiples of 1, 2, 5 or 10, as far apart as their digits need.
function wholeTicks(last, width) {
  const step = [1, 2, 5, 10, 20, 50].find((size) => (width / last) * size >= 24) ?? 100;
  return [1, ...d3.range(step, last + 1, step)].filter((tick, place) => place === 0 || tick > step / 2 + 0.6);
}

// A plan of panels with numbers along both axes. `sizes` holds the smallest and the largest width of a
// panel, and a function of the width that returns its height.
function planOfNumbers(data, chart, xs, ys, sizes, marks, axis = {}) {
  return {
    labels: NUMBERS_PX,
    ...sizes,
    panel(space) {
      const area = space.width - (space.labels || 6) - RIGHT_PX;
      return Plot.plot({
        ...frame(space, sizes.height(area), { marginTop: 24 }),
        x: { domain: xs },
        y: { domain: ys },
        marks: [
          ...bottomAxis(space, titleOf(data, chart.x), axis),
          ...leftAxis(space.hasLabels ? shorten(titleOf(data, chart.y), space.width) : null, space.hasLabels ? {} : { ticks: [] }),
          ...marks(space),
        ],
      });
    },
  };
}

function lines(data, rows, chart) {
  const series = unique(rows.map((row) => row[chart.series]));
  const ys = chart.domain ?? domainOf(valuesOf(rows, [chart.y, chart.low, chart.high]));
  const sizes = chart.facet ? { min: 190, max: 520, height: () => 190 } : { min: 240, max: 900, height: () => 330 };
  const legend = chart.series ? legendOf(rows, chart.series, { hasDashes: true, hasSymbols: !chart.step }) : [];
  return { ...planOfNumbers(data, chart, domainOf(valuesOf(rows, [chart.x])), ys, sizes, (space) => lineMarks(space, chart, series)), legend };
}

function lineMarks(space, chart, series) {
  const shown = selectedLast(space.rows.filter((row) => has(row, chart.y) && row[chart.x] !== null));
  const groups = d3.groups(shown, (row) => row[chart.series]);
  const curve = chart.step ? "step-after" : "linear";
  return groups.flatMap(([, group]) => {
    const colour = seriesColour(group[0], chart.series, series);
    const opacity = emphasis(group[0]);
    const band = chart.low ? group.filter((row) => has(row, chart.low, chart.high)) : [];
    return [
      Plot.areaY(band, { x: chart.x, y1: chart.low, y2: chart.high, fill: colour, fillOpacity: 0.14 * opacity, curve }),
      Plot.line(group, { x: chart.x, y: chart.y, stroke: colour, strokeOpacity: opacity, strokeWidth: colour === COLOURS.neutral ? 1 : 2, strokeDasharray: dashOf(group[0], chart.series, series), curve, render: tagged(group) }),
      chart.step ? null : Plot.dot(group, { x: chart.x, y: chart.y, r: colour === COLOURS.neutral ? 1.5 : 3.5, symbol: symbolOf(group[0], chart.series, series), fill: colour, fillOpacity: opacity, render: tagged(group) }),
    ];
  });
}

// Each team's value at its place of each case; a line joins the values of one case. Within a place the teams lie side by
// side in the order of the legend.
function podium(data, rows, chart) {
  const series = unique(rows.map((row) => row[chart.series]));
  const count = series.length;
  const at = (row) => row[chart.place] + 0.8 * ((series.indexOf(row[chart.series]) + 0.5) / count - 0.5);
  const ys = chart.domain ?? domainOf(valuesOf(rows, [chart.y]));
  const marks = (space) => {
    const shown = selectedLast(space.rows.filter((row) => has(row, chart.place, chart.y)));
    const joined = [...shown].sort((a, b) => at(a) - at(b));
    const fill = (row) => seriesColour(row, chart.series, series);
    return [
      Plot.ruleX(d3.range(1.5, count), { stroke: "var(--line)" }),
      Plot.line(joined, { x: at, y: chart.y, z: chart.line, stroke: "var(--soft)", strokeOpacity: 0.2, strokeWidth: 0.7, pointerEvents: "none" }),
      Plot.dot(shown, { x: at, y: chart.y, r: shown.length > 400 ? 2 : 3, fill, fillOpacity: emphasis, render: tagged(shown) }),
    ];
  };
  const sizes = { min: 240, max: 900, height: () => 330 };
  const axis = { ticks: d3.range(1, count + 1), tickFormat: "d" };
  const plan = planOfNumbers(data, { ...chart, x: chart.place }, [0.5, count + 0.5], ys, sizes, marks, axis);
  return { ...plan, legend: legendOf(rows, chart.series) };
}

function points(data, rows, chart) {
  const series = unique(rows.map((row) => row[chart.series]));
  let [xs, ys] = [domainOf(valuesOf(rows, [chart.x])), chart.domain ?? domainOf(valuesOf(rows, [chart.y]))];
  if (chart.diagonal) xs = ys = chart.domain ?? [Math.min(xs[0], ys[0]), Math.max(xs[1], ys[1])];
  const r = rows.length > 400 ? 2.2 : 4;
  const height = (area) => (chart.diagonal ? area : Math.min(area, 340)) + 64;
  const plan = planOfNumbers(data, chart, xs, ys, { min: 210, max: chart.facet ? 360 : 480, height }, (space) => {
    const shown = selectedLast(space.rows.filter((row) => has(row, chart.x, chart.y)));
    const style = { fillOpacity: (row) => emphasis(row) * (r < 4 ? 0.7 : 1), render: tagged(shown) };
    return [
      chart.diagonal ? Plot.line([[xs[0], xs[0]], [xs[1], xs[1]]], { stroke: "var(--soft)", strokeDasharray: "2 3" }) : null,
      Plot.dot(shown, { x: chart.x, y: chart.y, r, fill: (row) => seriesColour(row, chart.series, series), symbol: (row) => symbolOf(row, chart.series, series), ...style }),
    ];
  });
  return { ...plan, legend: chart.series ? legendOf(rows, chart.series, { hasSymbols: true }) : [] };
}
