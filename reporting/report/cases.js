// The cases of a challenge: cards with every team's answers and a picture with the contours of three teams, and
// summaries of the selected teams in the table.
/* global d3 */

/** @typedef {{title: string, summary: string, absent: number[], values: (string | number | null)[]}} AnswerColumn by case, and within it by team; 1 (right) or 0 in cases without the structure in the reference */
/** @typedef {{cases: string[], teams: string[], columns: AnswerColumn[]}} Answers */
/** @typedef {[string, [string, string]][]} Contours SVG paths of GTVp and GTVn by team, the reference under "" */

const MAX_CONTOURS = 3;
/** @type {NodeListOf<HTMLDetailsElement>} */
const cards = document.querySelectorAll(".card");
const filled = new Set();

/** Fill a card with one case's answers and contours when it is first opened. @param {HTMLDetailsElement} card @param {Answers} answers */
function fill(card, answers) {
  if (!card.open || filled.has(card)) return;
  filled.add(card);
  /** @type {HTMLElement} */
  const picture = card.querySelector("[data-contours]");
  if (picture) loadContours(picture);
  const place = answers.cases.indexOf(card.dataset.case);
  if (place < 0) return;
  const start = place * answers.teams.length;
  const columns = { team: { title: "Team", values: answers.teams } };
  answers.columns.forEach(({ title, values, absent }, number) => {
    const shown = values.slice(start, start + answers.teams.length);
    const named = absent.includes(place) ? shown.map((value) => (value === 0 ? "wrongly marked" : null)) : shown;
    if (!title.endsWith(" correct")) columns[`column${number}`] = { title, values: named };
  });
  card.lastElementChild.append(makeTable({ columns }, `Answers to ${card.dataset.case}`));
}

/** Load the contours as a script, because a page that is opened as a file can load no other data. @param {HTMLElement} picture */
function loadContours(picture) {
  const { contours: src } = picture.dataset;
  const onerror = () => picture.after(create("p", { class: "note" }, `${src} cannot be loaded, so the picture has no contours.`));
  document.head.append(create("script", { src, onerror }));
}

/** Called by the script of a case. @param {[string, Contours]} parts */
function addContours([name, pairs]) {
  const contours = new Map(pairs);
  const card = [...cards].find((candidate) => candidate.dataset.case === name);
  const picture = card.querySelector("[data-contours]");
  const teams = [...contours.keys()].filter((team) => team !== "");
  const first = [...new Set([teams[0], ...listSelected("team").filter((team) => teams.includes(team))])].slice(0, MAX_CONTOURS);
  const pickers = d3.range(Math.min(MAX_CONTOURS, teams.length)).map((number) => {
    const options = ["", ...teams].map((team) => create("option", { value: team }, team || "no contour"));
    const select = create("select", { "aria-label": `Contour ${number + 1}`, onchange: update }, ...options);
    select.value = first[number] ?? "";
    return select;
  });
  function update() {
    const chosen = pickers.map((picker, number) => [picker.value, chooseColour(picker.value, number)]).filter(([team]) => team !== "");
    pickers.forEach((picker, number) => (picker.style.borderLeft = picker.value ? `8px solid ${chooseColour(picker.value, number)}` : ""));
    picture.querySelector("svg")?.remove();
    picture.append(drawOverlay(picture.querySelector("img"), [...chosen, ["", COLOURS.reference]], contours));
  }
  picture.before(create("div", { class: "picture contours" }, "Contours below the reference: ", ...pickers));
  const image = picture.querySelector("img");
  if (image.complete && image.naturalWidth) update();
  else image.addEventListener("load", update);
}

/** Choose a team's own colour or, if it has none, the colour of its position among the contours. @param {string} team @param {number} number */
function chooseColour(team, number) {
  const own = getTeamColour(team);
  return own === COLOURS.neutral ? PALETTE[number] : own;
}

function drawOverlay(image, chosen, contours) {
  const svg = createSvg("svg", { viewBox: `0 0 ${image.naturalWidth} ${image.naturalHeight}`, fill: "none", "aria-hidden": "true" });
  for (const [team, colour] of chosen) {
    contours.get(team).forEach((d, label) => svg.append(createSvg("path", { d, stroke: colour, "stroke-width": team ? 2 : 3, "stroke-dasharray": label ? "7 4" : "none" })));
  }
  return svg;
}

// If there are more cases than `maxCards`, only the cards of selected and opened cases are shown.
function showCards(maxCards) {
  const chosen = listSelected("case");
  for (const card of cards) {
    const matches = matchesSelection(card.dataset);
    if (chosen.includes(card.dataset.case)) card.open = true;
    card.hidden = !matches || (cards.length > maxCards && !card.open);
  }
}

/** Fill the table with the summaries of the selected teams, or of all teams if none is selected. @param {HTMLTableElement} table @param {Answers} answers */
function summarise(table, answers) {
  const summaries = answers.columns.filter((column) => column.summary);
  const selected = listSelected("team").map((team) => answers.teams.indexOf(team)).filter((place) => place >= 0);
  const teams = selected.length ? selected : answers.teams.map((_, place) => place);
  const first = table.tHead.rows[0].cells.length - 1 - summaries.length;
  for (const row of table.tBodies[0].rows) {
    const place = answers.cases.indexOf(row.dataset.case);
    const start = place * answers.teams.length;
    summaries.forEach(({ summary, values, absent }, number) => {
      const numbers = teams.map((team) => values[start + team]).filter((value) => value !== null);
      const value = summary.includes("fraction") ? d3.mean(numbers) : d3.median(numbers);
      const cell = row.cells[first + number];
      const isCount = numbers.length > 0 && absent.includes(place);
      const count = `${numbers.filter((figure) => figure === 0).length} of ${numbers.length} teams wrong`;
      cell.textContent = value === undefined ? "-" : isCount ? count : value.toFixed(3).replace(/^-(?=[0.]+$)/, "");
      if (value === undefined || isCount) delete cell.dataset.sort;
      else cell.dataset.sort = String(value);
    });
  }
}

function start(element) {
  const answers = JSON.parse(element.textContent);
  answers.columns.forEach(readColumn);
  const maxCards = Number(document.querySelector(".cards").getAttribute("data-few"));
  /** @type {HTMLTableElement} */
  const table = document.querySelector("#by-case table");
  for (const card of cards) {
    card.addEventListener("toggle", () => fill(card, answers));
    fill(card, answers);
  }
  let shown = "";
  const update = () => {
    showCards(maxCards);
    const teams = listSelected("team").join("\n");
    if (table && teams !== shown) summarise(table, answers);
    shown = teams;
  };
  onSelection(update);
  update();
}

const answers = document.getElementById("page-cases");
if (answers) start(answers);
window.page.addContours = addContours;
