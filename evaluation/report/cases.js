// The cases of a challenge: cards with every team's answers, and summaries of the selected teams in the table.
"use strict";

(function (page) {
  const element = document.getElementById("page-cases");
  if (!element) return;
  const answers = JSON.parse(element.textContent);
  const cards = [...document.querySelectorAll(".card")];
  const few = Number(document.querySelector(".cards").dataset.few);
  const summaries = answers.columns.filter((column) => column.summary);
  const table = element.closest("section").querySelector("table");

  const valueOf = (column, place) => (column.codes ? (column.codes[place] === null ? null : column.texts[column.codes[place]]) : column.values[place]);

  // Columns of one case's answers, as page.tableOf takes them.
  function answersOf(name) {
    const start = answers.cases.indexOf(name) * answers.teams.length;
    if (start < 0) return null;
    const columns = { team: { title: "Team", values: answers.teams } };
    answers.columns.forEach((column, number) => {
      if (column.title.endsWith(" correct")) return;
      columns[`column${number}`] = { title: column.title, values: answers.teams.map((_, team) => valueOf(column, start + team)) };
    });
    return { columns };
  }

  function fill(card) {
    if (!card.open || card.isFilled) return;
    card.isFilled = true;
    const data = answersOf(card.dataset.case);
    if (!data) return;
    const scroller = page.tableOf(data, `Answers to ${card.dataset.case}`);
    card.lastElementChild.append(scroller);
    page.activateTable(scroller.firstElementChild);
  }

  // Of many cases only the chosen ones have their card on the page.
  function showCards() {
    const chosen = page.selectedValues("case");
    for (const card of cards) {
      const matches = page.matches(card.dataset);
      const wanted = cards.length <= few ? matches : card.open || chosen.includes(card.dataset.case);
      card.hidden = !(wanted && matches);
      if (chosen.includes(card.dataset.case)) card.open = true;
    }
  }

  function summarise(values, column) {
    const numbers = values.filter((value) => value !== null);
    if (numbers.length === 0) return null;
    return column.summary.includes("fraction") ? d3.mean(numbers) : d3.median(numbers);
  }

  // The table's summaries are those of the selected teams, or of all.
  function updateSummaries() {
    const selected = page.selectedValues("team").map((team) => answers.teams.indexOf(team)).filter((place) => place >= 0);
    const teams = selected.length ? selected : answers.teams.map((_, place) => place);
    const first = table.tHead.rows[0].cells.length - 1 - summaries.length;
    for (const row of table.tBodies[0].rows) {
      const start = answers.cases.indexOf(row.dataset.case) * answers.teams.length;
      summaries.forEach((column, number) => {
        const value = summarise(teams.map((team) => column.values[start + team]), column);
        const cell = row.cells[first + number];
        cell.textContent = value === null ? "-" : value.toFixed(3);
        if (value === null) delete cell.dataset.sort;
        else cell.dataset.sort = value;
      });
    }
  }

  for (const card of cards) {
    card.addEventListener("toggle", () => fill(card));
    fill(card);
  }
  page.onSelection(showCards);
  let shown = "";
  page.onSelection(() => {
    const teams = page.selectedValues("team").join("\n");
    if (table && teams !== shown) updateSummaries();
    shown = teams;
  });
  showCards();
})(window.page);
