// The selected teams, centres and cases: stored in the page's address, shown in a bar, and announced to tables and charts.

const KEYS = ["team", "centre", "case"];
const selected = new Map(KEYS.map((key) => [key, new Set()]));
const listeners = [];
let anchor = "";

const onSelection = (listener) => listeners.push(listener);
const isSelected = (key, value) => selected.get(key).has(value);
const listSelected = (key) => [...selected.get(key)];

// Whether the selection has a value of one of the row's keys, so that the row can match it or not.
const isConcerned = (row) => KEYS.some((key) => selected.get(key).size > 0 && row[key] !== undefined && row[key] !== null);

// A row matches if each of its keys with a selection is among the selected values.
const matchesSelection = (row) =>
  KEYS.every((key) => {
    const values = selected.get(key);
    return values.size === 0 || row[key] === undefined || row[key] === null || values.has(String(row[key]));
  });

function toggle(key, value) {
  const values = selected.get(key);
  if (!values.delete(value)) values.add(value);
  announce();
}

function clearSelection() {
  selected.forEach((values) => values.clear());
  announce();
}

function announce() {
  writeHash();
  showBar();
  document.querySelectorAll("button.choice").forEach(markPressed);
  listeners.forEach((listener) => listener());
}

const markPressed = (button) => button.setAttribute("aria-pressed", String(isSelected(button.dataset.key, button.dataset.value)));

// Write the anchor and the selection into the address: `#task1&team=ours`.
function writeHash() {
  const parts = anchor ? [anchor] : [];
  selected.forEach((values, key) => values.forEach((value) => parts.push(`${key}=${encodeURIComponent(value)}`)));
  const address = parts.length ? `#${parts.join("&")}` : location.pathname + location.search;
  history.replaceState(null, "", address);
}

function readHash() {
  const parts = location.hash.slice(1).split("&").filter(Boolean);
  const pairs = parts.filter((part) => part.includes("="));
  anchor = parts.find((part) => !part.includes("=")) || "";
  if (pairs.length || parts.length === 0) selected.forEach((values) => values.clear());
  for (const pair of pairs) {
    const [key, value] = [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)];
    if (selected.has(key)) selected.get(key).add(decode(value));
  }
  announce();
  const target = anchor && document.getElementById(decode(anchor));
  if (!target) return;
  target.hidden = false;
  const own = target.matches(".chart, .listing") ? target.querySelector(":scope > details") : null;
  for (let fold = own ?? target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.setAttribute("open", "");
  target.scrollIntoView();
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function showBar() {
  const bar = document.getElementById("selection");
  const entries = [...selected].flatMap(([key, values]) => [...values].map((value) => [key, value]));
  bar.hidden = entries.length === 0;
  const buttons = entries.map(([key, value]) => {
    const label = `Remove ${key} ${value} from the selection`;
    return create("button", { type: "button", "aria-label": label, onclick: () => toggle(key, value) }, `${key} ${value} \u00d7`);
  });
  const links = entries.map(([key, value]) => [`${key}-${value}`, value]).filter(([id]) => document.getElementById(id));
  const shows = links.map(([id, value]) => create("a", { href: `#${encodeURIComponent(id)}` }, `Show ${value}`));
  const clear = create("button", { type: "button", onclick: clearSelection }, "Clear");
  bar.replaceChildren(create("span", { role: "status" }, entries.length ? "Selected:" : ""), ...buttons, clear, ...shows);
}

// Names become buttons once scripts run.
function activateChoices(root) {
  for (const name of root.querySelectorAll("span.choice")) {
    const button = create("button", { type: "button", class: "choice" }, name.textContent);
    Object.assign(button.dataset, name.dataset);
    markPressed(button);
    name.replaceWith(button);
  }
}

function startSelection() {
  activateChoices(document);
  document.addEventListener("click", ({ target }) => {
    const button = /** @type {any} */ (target).closest("button.choice");
    if (button) toggle(button.dataset.key, button.dataset.value);
  });
  window.addEventListener("hashchange", readHash);
  readHash();
}
