// Tables: sorted by a click on a header, searched where they are long, filtered by the selection.

const SEARCHED = 15;
const TALL = 60;

function getSortValue(row, place) {
  const cell = row.cells[place];
  if (!cell || cell.colSpan > 1) return null;
  if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
  const text = cell.textContent.trim();
  return text === "" || text === "-" || text === "\u2013" ? null : text;
}

// Compare two values: numbers come before texts, and absent values come last in both directions.
function compare(a, b, sign) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (a === b) return 0; // also two infinite values
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}

function sortBy(table, place) {
  const heads = [...table.tHead.rows[0].cells];
  const now = heads[place].getAttribute("aria-sort");
  const ascending = now === "none" ? heads[place].dataset.first !== "descending" : now !== "ascending";
  heads.forEach((head) => head.setAttribute("aria-sort", "none"));
  heads[place].setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, value: getSortValue(row, place) }));
  rows.sort((a, b) => compare(a.value, b.value, ascending ? 1 : -1));
  body.append(...rows.map((entry) => entry.row));
}

function addSorting(table) {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    if (!head.textContent.trim()) return;
    head.replaceChildren(create("button", { type: "button", onclick: () => sortBy(table, place) }, head.textContent));
    head.setAttribute("aria-sort", "none");
  });
}

function addSearch(table, scroller) {
  const input = create("input", { type: "search", oninput: () => filterTable(table) });
  const count = create("span", { role: "status" });
  table.search = { input, count };
  scroller.before(create("div", { class: "search" }, create("label", {}, "Search ", input), count));
}

// Hide the rows that do not match the search, and the rows that do not match the selection. A table with one row for each
// team compares the teams, so that it marks the selected rows instead of hiding the other rows.
function filterTable(table) {
  const words = table.search ? table.search.input.value.trim().toLowerCase() : "";
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    const matches = matchesSelection(row.dataset);
    const concerned = isConcerned(row.dataset);
    const keep = (matches || table.comparesTeams) && (!words || row.textContent.toLowerCase().includes(words));
    row.hidden = !keep;
    row.classList.toggle("chosen", concerned && matches);
    shown += keep;
  }
  if (table.search) {
    const total = table.tBodies[0].rows.length;
    table.search.count.textContent = shown < total ? `${shown} of ${total} rows` : `${total} rows`;
  }
}

// Format a leaderboard as CSV, with three columns for a value and its interval.
function formatBoardCsv(table) {
  const listCells = (row) =>
    [...row.cells].flatMap((cell, place) => {
      const interval = cell.querySelector(".interval");
      const text = (cell.querySelector(".value, .choice") ?? cell).textContent.trim();
      const ends = interval ? interval.textContent.trim().split(" to ") : ["", ""];
      return hasInterval[place] ? [text, ...ends] : [text];
    });
  const rows = [...table.tBodies[0].rows];
  const hasInterval = [...table.tHead.rows[0].cells].map((_, place) => rows.some((row) => row.cells[place]?.querySelector(".interval")));
  const heads = [...table.tHead.rows[0].cells].flatMap((head, place) => {
    const title = head.textContent.trim();
    return hasInterval[place] ? [title, `${title}, 95% interval from`, "to"] : [title];
  });
  return [heads, ...rows.map(listCells)].map(formatCsvLine).join("");
}

// Add a button for the CSV file above a leaderboard, and a hint if there are more columns to the right.
function addBoardTools(table, scroller) {
  const name = `${table.closest("[id]").id}-leaderboard.csv`;
  const csv = create("button", { type: "button", onclick: () => saveFile(name, "text/csv", formatBoardCsv(table)) }, "CSV");
  const more = create("span", { class: "more" }, "More columns to the right \u2192");
  scroller.before(create("div", { class: "tools" }, csv, more));
}

// Show a shadow at the right edge while the table continues beyond it.
function watchEdge(table, scroller) {
  const update = () => {
    const more = scroller.parentElement?.querySelector(":scope > .tools > .more");
    const rest = scroller.scrollWidth - scroller.clientWidth - scroller.scrollLeft > 2;
    scroller.classList.toggle("cut", rest);
    if (more) more.hidden = !rest;
  };
  scroller.addEventListener("scroll", update, { passive: true });
  const observer = new ResizeObserver(update);
  observer.observe(scroller);
  observer.observe(table);
}

// Activate a table once, also a table that a script adds.
function activateTable(table) {
  table.dataset.ready = "";
  const scroller = table.closest(".scroll");
  const rows = [...table.tBodies[0].rows];
  const teams = rows.filter((row) => row.dataset.team !== undefined && Object.keys(row.dataset).length === 1).map((row) => row.dataset.team);
  table.comparesTeams = rows.length > 0 && new Set(teams).size === rows.length;
  activateChoices(table);
  if (table.classList.contains("board")) addBoardTools(table, scroller);
  addSorting(table);
  if (rows.length > SEARCHED || table.classList.contains("searched")) addSearch(table, scroller);
  scroller.classList.toggle("tall", rows.length > TALL);
  scroller.setAttribute("role", "group");
  scroller.setAttribute("aria-label", table.caption ? table.caption.textContent : "Table");
  scroller.tabIndex = 0;
  watchEdge(table, scroller);
  filterTable(table);
  onSelection(() => filterTable(table));
}

// Make a table of a figure's data that can be sorted and searched.
function makeTable(data, caption) {
  const keys = Object.keys(data.columns);
  const head = create("tr", {}, ...keys.map((key) => create("th", { scope: "col" }, data.columns[key].title)));
  const body = create("tbody");
  for (const row of listRows(data)) {
    const line = create("tr");
    for (const key of KEYS) if (typeof row[key] === "string") line.dataset[key] = row[key];
    keys.forEach((key, place) => line.append(makeCell(row[key], key, place === 0, countDigits(data.columns[key]))));
    body.append(line);
  }
  const table = create("table", {}, create("caption", {}, caption), create("thead", {}, head), body);
  const scroller = create("div", { class: "scroll" }, table);
  activateTable(table);
  return scroller;
}

function makeCell(value, key, isHeader, digits) {
  const cell = create(isHeader ? "th" : "td", isHeader ? { scope: "row" } : {});
  if (KEYS.includes(key) && typeof value === "string") {
    cell.append(create("span", { class: "choice", "data-key": key, "data-value": value }, value));
  } else {
    cell.textContent = showValue(value, digits);
    if (typeof value === "number") cell.dataset.sort = value;
  }
  return cell;
}
