// The kinds of charts: each returns the plan of a figure for charts.js.
/* global d3, Plot */

const getTitle = (data, key) => data.columns[key]?.title ?? "";

// Plan panels with one line for each category.
function planCategories(data, rows, chart, width, keys, options = {}) {
  const categories = unique(rows.map((row) => row[chart.y]));
  const labels = computeLabelSpace(categories, width);
  const isLong = categories.length <= MANY && categories.some((name) => getTextWidth(String(name)) > labels - 12);
  const step = Math.max(getLineStep(categories.length), options.step ?? 0, isLong ? TWO_LINES_PX : 0);
  const domain = makeSharedDomain(rows, keys, chart, options);
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
          ...drawBottomAxis(space, getTitle(data, chart.x), more.axis),
          ...marks,
          space.hasLabels ? drawCategoryLabels(categories, chart.y, { ...space, step }, more.labels) : null,
        ],
      });
    },
  };
}

// Leave out the declared domain if the values use less than half of it, so that small differences can be read.
function zoomIn(rows, chart) {
  const [low, high] = computeDomain(listValues(rows, [chart.x, chart.low, chart.high]));
  const isSmall = chart.domain && high - low < (chart.domain[1] - chart.domain[0]) / 2;
  return isSmall ? { ...chart, domain: undefined } : chart;
}

function intervals(data, rows, chart, width) {
  const plan = planCategories(data, rows, zoomIn(rows, chart), width, [chart.x, chart.low, chart.high]);
  return {
    ...plan,
    panel(space) {
      const shown = sortSelectedLast(space.rows);
      const ranges = shown.filter((row) => has(row, chart.low, chart.high));
      const points = shown.filter((row) => has(row, chart.x));
      const style = (list) => ({ strokeOpacity: getEmphasis, fillOpacity: getEmphasis, render: makeTagger(list) });
      return plan.panel(space, [
        Plot.ruleY(ranges, { y: chart.y, x1: chart.low, x2: chart.high, stroke: getRowColour, strokeWidth: 2, ...style(ranges) }),
        Plot.dot(points, { y: chart.y, x: chart.x, fill: getRowColour, r: 4, ...style(points) }),
      ]);
    },
  };
}

function bars(data, rows, chart, width) {
  const series = chart.series ? unique(rows.map((row) => row[chart.series])) : [null];
  const count = unique(rows.map((row) => row[chart.y])).length;
  const step = series.length * (count > 16 ? 5 : 9) + 5;
  const plan = planCategories(data, rows, chart, width, [chart.x], { zero: true, step });
  const height = 0.8 / series.length;
  const top = (row) => plan.categories.indexOf(row[chart.y]) + 0.1 + height * Math.max(0, series.indexOf(row[chart.series]));
  return {
    ...plan,
    legend: chart.series && chart.series !== chart.y ? makeLegend(rows, chart.series) : [],
    panel(space) {
      const shown = space.rows.filter((row) => has(row, chart.x));
      const fill = (row) => getSeriesColour(row, chart.series, series);
      return plan.panel(
        space,
        [
          Plot.rect(shown, { x1: 0, x2: chart.x, y1: top, y2: (row) => top(row) + height, fill, fillOpacity: getEmphasis, render: makeTagger(shown) }),
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
  const plan = planCategories(data, rows, chart, width, [chart.x]);
  const last = Math.max(1, ...rows.map((row) => row[chart.x] ?? 1));
  return {
    ...plan,
    min: Math.max(150, Math.min((width > 700 ? 9 : 5) * last, 300)),
    panel(space) {
      const shown = sortSelectedLast(space.rows.filter((row) => has(row, chart.x, chart.size)));
      const ranges = chart.low ? [...new Map(shown.map((row) => [row[chart.y], row])).values()].filter((row) => has(row, chart.low, chart.high)) : [];
      const area = (space.width - space.labels - 18) / (last + 0.5);
      const radius = Math.min(plan.step * 0.62, Math.max(area, 7) * 0.62);
      const style = (list) => ({ fillOpacity: getEmphasis, strokeOpacity: getEmphasis, render: makeTagger(list) });
      return plan.panel(
        space,
        [
          Plot.ruleY(ranges, { y: chart.y, x1: chart.low, x2: chart.high, stroke: "var(--soft)", strokeWidth: 1, ...style(ranges) }),
          Plot.dot(shown, { y: chart.y, x: chart.x, r: (row) => Math.max(0.8, radius * Math.sqrt(row[chart.size])), fill: getRowColour, ...style(shown) }),
        ],
        { x: { domain: [0.4, last + 0.6] }, axis: { ticks: listWholeTicks(last, space.width - space.labels), tickFormat: "d" } },
      );
    },
  };
}

// List 1 and the multiples of 1, 2, 5, 10, 20, 50 or 100, whichever leave enough space for the digits.
function listWholeTicks(last, width) {
  const step = [1, 2, 5, 10, 20, 50].find((size) => (width / last) * size >= 24) ?? 100;
  return [1, ...d3.range(step, last + 1, step)].filter((tick, place) => place === 0 || tick > step / 2 + 0.6);
}

// Plan panels with numbers along both axes. `sizes` contains the smallest and the largest width of a panel, and a function
// of the width that returns the height.
function planNumbers(data, chart, xs, ys, sizes, marks, axis = {}) {
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
          ...drawBottomAxis(space, getTitle(data, chart.x), axis),
          ...drawLeftAxis(space.hasLabels ? shorten(getTitle(data, chart.y), space.width) : null, space.hasLabels ? {} : { ticks: [] }),
          ...marks(space),
        ],
      });
    },
  };
}

function lines(data, rows, chart) {
  const series = unique(rows.map((row) => row[chart.series]));
  const ys = chart.domain ?? computeDomain(listValues(rows, [chart.y, chart.low, chart.high]));
  const sizes = chart.facet ? { min: 190, max: 520, height: () => 190 } : { min: 240, max: 900, height: () => 330 };
  const legend = chart.series ? makeLegend(rows, chart.series, { hasDashes: true, hasSymbols: !chart.step }) : [];
  return { ...planNumbers(data, chart, computeDomain(listValues(rows, [chart.x])), ys, sizes, (space) => drawLineMarks(space, chart, series)), legend };
}

function drawLineMarks(space, chart, series) {
  const shown = sortSelectedLast(space.rows.filter((row) => has(row, chart.y) && row[chart.x] !== null));
  const groups = d3.groups(shown, (row) => row[chart.series]);
  const curve = chart.step ? "step-after" : "linear";
  return groups.flatMap(([, group]) => {
    const colour = getSeriesColour(group[0], chart.series, series);
    const opacity = getEmphasis(group[0]);
    const band = chart.low ? group.filter((row) => has(row, chart.low, chart.high)) : [];
    return [
      Plot.areaY(band, { x: chart.x, y1: chart.low, y2: chart.high, fill: colour, fillOpacity: 0.14 * opacity, curve }),
      Plot.line(group, { x: chart.x, y: chart.y, stroke: colour, strokeOpacity: opacity, strokeWidth: colour === COLOURS.neutral ? 1 : 2, strokeDasharray: getDash(group[0], chart.series, series), curve, render: makeTagger(group) }),
      chart.step ? null : Plot.dot(group, { x: chart.x, y: chart.y, r: colour === COLOURS.neutral ? 1.5 : 3.5, symbol: getSymbol(group[0], chart.series, series), fill: colour, fillOpacity: opacity, render: makeTagger(group) }),
    ];
  });
}

// Draw each team's value of each case at the team's rank in the case; a line joins the values of one case. Within a rank,
// the teams are side by side in the order of the legend.
function podium(data, rows, chart) {
  const series = unique(rows.map((row) => row[chart.series]));
  const count = series.length;
  const at = (row) => row[chart.place] + 0.8 * ((series.indexOf(row[chart.series]) + 0.5) / count - 0.5);
  const ys = chart.domain ?? computeDomain(listValues(rows, [chart.y]));
  const marks = (space) => {
    const shown = sortSelectedLast(space.rows.filter((row) => has(row, chart.place, chart.y)));
    const joined = [...shown].sort((a, b) => at(a) - at(b));
    const fill = (row) => getSeriesColour(row, chart.series, series);
    return [
      Plot.ruleX(d3.range(1.5, count), { stroke: "var(--line)" }),
      Plot.line(joined, { x: at, y: chart.y, z: chart.line, stroke: "var(--soft)", strokeOpacity: 0.2, strokeWidth: 0.7, pointerEvents: "none" }),
      Plot.dot(shown, { x: at, y: chart.y, r: shown.length > 400 ? 2 : 3, fill, fillOpacity: getEmphasis, render: makeTagger(shown) }),
    ];
  };
  const sizes = { min: 240, max: 900, height: () => 330 };
  const axis = { ticks: d3.range(1, count + 1), tickFormat: "d" };
  const plan = planNumbers(data, { ...chart, x: chart.place }, [0.5, count + 0.5], ys, sizes, marks, axis);
  return { ...plan, legend: makeLegend(rows, chart.series) };
}

function points(data, rows, chart) {
  const series = unique(rows.map((row) => row[chart.series]));
  let [xs, ys] = [computeDomain(listValues(rows, [chart.x])), chart.domain ?? computeDomain(listValues(rows, [chart.y]))];
  if (chart.diagonal) xs = ys = chart.domain ?? [Math.min(xs[0], ys[0]), Math.max(xs[1], ys[1])];
  const r = rows.length > 400 ? 2.2 : 4;
  const height = (area) => (chart.diagonal ? area : Math.min(area, 340)) + 64;
  const plan = planNumbers(data, chart, xs, ys, { min: 210, max: chart.facet ? 360 : 480, height }, (space) => {
    const shown = sortSelectedLast(space.rows.filter((row) => has(row, chart.x, chart.y)));
    const style = { fillOpacity: (row) => getEmphasis(row) * (r < 4 ? 0.7 : 1), render: makeTagger(shown) };
    return [
      chart.diagonal ? Plot.line([[xs[0], xs[0]], [xs[1], xs[1]]], { stroke: "var(--soft)", strokeDasharray: "2 3" }) : null,
      Plot.dot(shown, { x: chart.x, y: chart.y, r, fill: (row) => getSeriesColour(row, chart.series, series), symbol: (row) => getSymbol(row, chart.series, series), ...style }),
    ];
  });
  return { ...plan, legend: chart.series ? makeLegend(rows, chart.series, { hasSymbols: true }) : [] };
}
