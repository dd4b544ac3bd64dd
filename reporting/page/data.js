// The page's data: the columns that reporting/page/charts.py writes, formatted as text and as CSV.

const DASH = "\u2013";
// A longer list of numbers, such as a box's outliers, is cut off where it is shown; CSV files contain all of it.
const MAX_LISTED = 12;

function parse(element) {
  return element ? JSON.parse(element.textContent) : null;
}

/**
 * @typedef {{title: string, values: any[], isText?: boolean, digits?: number, codes?: (number | null)[], texts?: string[]}} Column
 * @typedef {{name?: string, chart?: Object<string, any>, columns: Object<string, Column>}} FigureData
 */

/** Replace codes by their texts. @param {Column} column */
function readColumn(column) {
  if (!column.codes) return;
  column.isText = true;
  column.values = column.codes.map((code) => (code === null ? null : column.texts[code]));
}

/** @returns {FigureData} */
function readData(element) {
  const data = parse(element);
  Object.values(data.columns).forEach(readColumn);
  return data;
}

// List an object for each row, with the row's number as `index`.
function listRows(data) {
  const keys = Object.keys(data.columns);
  const count = keys.length ? data.columns[keys[0]].values.length : 0;
  return Array.from({ length: count }, (_, index) => {
    const row = { index };
    for (const key of keys) row[key] = data.columns[key].values[index];
    return row;
  });
}

// Format a number with `digits` decimals, without the sign of a negative zero.
const formatFixed = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "");

// Format a value with as many digits as a reader needs; `digits` is the maximum number of decimals in its column.
function showValue(value, digits = Number.isInteger(value) ? 0 : 3) {
  if (value === null || value === undefined || value.length === 0) return DASH;
  if (Array.isArray(value)) return value.slice(0, MAX_LISTED).map((item) => showValue(item, digits)).join(", ") + (value.length > MAX_LISTED ? `, … (${value.length})` : "");
  if (typeof value !== "number") return String(value);
  if (value === 0 || digits === 0) return String(value);
  const size = Math.abs(value);
  if (size < 0.001) return value.toExponential(1);
  return formatFixed(value, Math.min(digits, size < 10 ? 3 : size < 1000 ? 1 : 0));
}

// Return the maximum number of decimals in a column, at most three.
function countDigits(column) {
  column.digits ??= Math.max(
    0,
    ...column.values.flat().map((value) => (typeof value === "number" ? Math.min(3, (String(value).split(".")[1] || "").length) : 0)),
  );
  return column.digits;
}

// Describe a row of a figure for the tooltip, one column in each line.
function describeRow(data, row) {
  return Object.entries(data.columns)
    .filter(([key]) => row[key] !== null && row[key] !== undefined)
    .map(([key, column]) => `${column.title}: ${showValue(row[key], countDigits(column))}`)
    .join("\n");
}

// As in contract/io/tables.py: a spreadsheet must not evaluate the name of a team as a formula.
const FORMULA = /^[=+@\t\r-](?=.)(?![\d.]+(e[+-]?\d+)?$|inf$)/;

function quote(value) {
  const plain = value === null || value === undefined ? "" : Array.isArray(value) ? value.join(" ") : String(value);
  const text = typeof value === "string" && FORMULA.test(plain) ? `'${plain}` : plain;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const formatCsvLine = (values) => `${values.map(quote).join(",")}\r\n`;

function toCsv(data) {
  const keys = Object.keys(data.columns);
  const heads = keys.map((key) => data.columns[key].title);
  return [heads, ...listRows(data).map((row) => keys.map((key) => row[key]))].map(formatCsvLine).join("");
}

/** A new element with attributes, listeners such as `onclick`, and children. @returns {any} */
function create(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const COLOURS = parse(document.getElementById("page-colours")) || { teams: {}, neutral: "#7c8794" };
