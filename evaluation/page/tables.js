// Tables: sorted by a click on a header, searched where they are long, filtered by the selection.
"use strict";

(function (page) {
  const SEARCHED = 15;
  const TALL = 60;

  function sortValue(row, place) {
    const cell = row.cells[place];
    if (!cell || cell.colSpan > 1) return null;
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    const text = cell.textContent.trim();
    return text === "" || text === "-" || text === "\u2013" ? null : text;
  }

  // Numbers before texts, absent values last in both directions.
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
  }

  function sortBy(table, place) {
    const heads = [...table.tHead.rows[0].cells];
    const ascending = heads[place].getAttribute("aria-sort") !== "ascending";
    heads.forEach((head) => head.setAttribute("aria-sort", "none"));
    heads[place].setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, value: sortValue(row, place) }));
    rows.sort((a, b) => compare(a.value, b.value, ascending ? 1 : -1));
    body.append(...rows.map((one) => one.row));
  }

  function addSorting(table) {
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      if (!head.textContent.trim()) return;
      const button = page.element("button", { type: "button" }, head.textContent);
      button.addEventListener("click", () => sortBy(table, place));
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
    });
  }

  function addSearch(table, scroller) {
    const input = page.element("input", { type: "search" });
    const label = page.element("label", {}, "Search ", input);
    const count = page.element("span", { role: "status" });
    table.search = { input, count };
    input.addEventListener("input", () => filterTable(table));
    scroller.before(page.element("div", { class: "search" }, label, count));
  }

  // Rows that miss the search are hidden. Rows that miss the selection are hidden, too, except in tables with a line
  // for each team, whose point is the comparison: there the selected ones are marked.
  function filterTable(table) {
    const words = table.search ? table.search.input.value.trim().toLowerCase() : "";
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const matches = page.matches(row.dataset);
      const concerned = page.concerns(row.dataset);
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

  function makeScrollable(table, scroller) {
    scroller.classList.toggle("tall", table.tBodies[0].rows.length > TALL);
    scroller.setAttribute("role", "group");
    scroller.setAttribute("aria-label", table.caption ? table.caption.textContent : "Table");
    scroller.tabIndex = 0;
  }

  // Called once for each table, also for those that scripts add.
  page.activateTable = function (table) {
    const scroller = table.closest(".scroll");
    const rows = [...table.tBodies[0].rows];
    const teams = rows.filter((row) => row.dataset.team !== undefined && Object.keys(row.dataset).length === 1).map((row) => row.dataset.team);
    table.comparesTeams = rows.length > 0 && new Set(teams).size === rows.length;
    page.activateChoices(table);
    addSorting(table);
    if (rows.length > SEARCHED) addSearch(table, scroller);
    makeScrollable(table, scroller);
    filterTable(table);
    page.onSelection(() => filterTable(table));
  };

  // The data of a figure as a table.
  page.tableOf = function (data, caption) {
    const keys = Object.keys(data.columns);
    const head = page.element("tr", {}, ...keys.map((key) => page.element("th", { scope: "col" }, data.columns[key].title)));
    const body = page.element("tbody");
    for (const row of page.rowsOf(data)) {
      const line = page.element("tr");
      for (const key of page.keys) if (typeof row[key] === "string") line.dataset[key] = row[key];
      keys.forEach((key, place) => line.append(cellOf(row[key], key, place === 0, page.digitsOf(data.columns[key]))));
      body.append(line);
    }
    const table = page.element("table", {}, page.element("caption", {}, caption), page.element("thead", {}, head), body);
    const scroller = page.element("div", { class: "scroll" }, table);
    return scroller;
  };

  function cellOf(value, key, isHeader, digits) {
    const cell = page.element(isHeader ? "th" : "td", isHeader ? { scope: "row" } : {});
    if (page.keys.includes(key) && typeof value === "string") {
      cell.append(page.element("span", { class: "choice", "data-key": key, "data-value": value }, value));
    } else {
      cell.textContent = page.show(value, digits);
      if (typeof value === "number") cell.dataset.sort = value;
    }
    return cell;
  }
})(window.page);
