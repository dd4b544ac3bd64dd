// The cases of a challenge: cards with every team's answers, and summaries of the selected teams in the table.
/* global d3 */

import { readColumn } from "../page/data.js";
import { matchesSelection, onSelection, selectedValues } from "../page/selection.js";
import { tableOf } from "../page/tables.js";

/** @typedef {{title: string, summary: string, absent: number[], values: (string | number | null)[]}} AnswerColumn by case, and within it by team; 1 (right) or 0 in cases whose reference lacks the structure */
/** @typedef {{cases: string[], teams: string[], columns: AnswerColumn[]}} Answers */

/** @type {NodeListOf<HTMLDetailsElement>} */
const cards = document.querySelectorAll(".card");
const filled = new Set();

/** Fill a card with one case's answers when it is first opened. @param {HTMLDetailsElement} card @param {Answers} answers */
function fill(card, answers) {
  const place = answers.cases.indexOf(card.dataset.case);
  const start = place * answers.teams.length;
  if (!card.open || filled.has(card) || start < 0) return;
  filled.add(card);
  const columns = { team: { title: "Team", values: answers.teams } };
  answers.columns.forEach(({ title, values, absent }, number) => {
    const shown = values.slice(start, start + answers.teams.length);
    const named = absent.includes(place) ? shown.map((value) => (value === 0 ? "false" : null)) : shown;
    if (!title.endsWith(" correct")) columns[`column${number}`] = { title, values: named };
  });
  card.lastElementChild.append(tableOf({ columns }, `Answers to ${card.dataset.case}`));
}

// Of many cases only the chosen ones have their card on the page.
function showCards(few) {
  const chosen = selectedValues("case");
  for (const card of cards) {
    const matches = matchesSelection(card.dataset);
    if (chosen.includes(card.dataset.case)) card.open = true;
    card.hidden = !matches || (cards.length > few && !card.open);
  }
}

/** The table's summaries are those of the selected teams, or of all. @param {HTMLTableElement} table @param {Answers} answers */
function summarise(table, answers) {
  const summaries = answers.columns.filter((column) => column.summary);
  const selected = selectedValues("team").map((team) => answers.teams.indexOf(team)).filter((place) => place >= 0);
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
      const count = `${numbers.filter((one) => one === 0).length} of ${numbers.length} teams false`;
      cell.textContent = value === undefined ? "-" : isCount ? count : value.toFixed(3);
      if (value === undefined || isCount) delete cell.dataset.sort;
      else cell.dataset.sort = String(value);
    });
  }
}

function start(element) {
  const answers = JSON.parse(element.textContent);
  answers.columns.forEach(readColumn);
  const few = Number(element.closest("section").querySelector(".cards").dataset.few);
  const table = element.closest("section").querySelector("table");
  for (const card of cards) {
    card.addEventListener("toggle", () => fill(card, answers));
    fill(card, answers);
  }
  let shown = "";
  const update = () => {
    showCards(few);
    const teams = selectedValues("team").join("\n");
    if (table && teams !== shown) summarise(table, answers);
    shown = teams;
  };
  onSelection(update);
  update();
}

const answers = document.getElementById("page-cases");
if (answers) start(answers);
