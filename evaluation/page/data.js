// The page's data: columns as written by evaluation/page/charts.py, and their text as shown, as CSV and as a table.
"use strict";
window.page = window.page || {};

(function (page) {
  const DASH = "\u2013";

  function parse(element) {
    return element ? JSON.parse(element.textContent) : null;
  }

  // {name, chart, columns: {key: {title, values}}}, with texts in place of their codes.
  page.readData = function (element) {
    const data = parse(element);
    for (const column of Object.values(data.columns)) {
      if (column.codes) {
        column.isText = true;
        column.values = column.codes.map((code) => (code === null ? null : column.texts[code]));
      }
    }
    return data;
  };

  // One object for each row, with the row's number as `index`.
  page.rowsOf = function (data) {
    const keys = Object.keys(data.columns);
    const count = keys.length ? data.columns[keys[0]].values.length : 0;
    return Array.from({ length: count }, (_, index) => {
      const row = { index };
      for (const key of keys) row[key] = data.columns[key].values[index];
      return row;
    });
  };

  // A number with as many digits as a reader needs; `digits` is the most that its column has.
  page.show = function (value, digits = Number.isInteger(value) ? 0 : 3) {
    if (value === null || value === undefined) return DASH;
    if (typeof value !== "number") return String(value);
    if (value === 0 || digits === 0) return String(value);
    const size = Math.abs(value);
    if (size < 0.001) return value.toExponential(1);
    return value.toFixed(Math.min(digits, size < 10 ? 3 : size < 1000 ? 1 : 0));
  };

  // The most decimals of any number of a column, three at most.
  page.digitsOf = function (column) {
    column.digits ??= Math.max(
      0,
      ...column.values.map((value) => (typeof value === "number" ? Math.min(3, (String(value).split(".")[1] || "").length) : 0)),
    );
    return column.digits;
  };

  // The rows of a figure as lines of text, for the tooltip.
  page.describe = function (data, row) {
    return Object.entries(data.columns)
      .filter(([key]) => row[key] !== null && row[key] !== undefined)
      .map(([key, column]) => `${column.title}: ${page.show(row[key], page.digitsOf(column))}`)
      .join("\n");
  };

  page.csv = function (data) {
    const quote = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const columns = Object.values(data.columns);
    const lines = [columns.map((column) => quote(column.title))];
    for (const row of page.rowsOf(data)) lines.push(Object.keys(data.columns).map((key) => quote(row[key])));
    return lines.map((line) => line.join(",") + "\r\n").join("");
  };

  page.element = function (name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  page.colours = parse(document.getElementById("page-colours")) || { teams: {}, neutral: "#7c8794" };
})(window.page);
