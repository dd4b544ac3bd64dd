// Elements of the page, and the lines of text about the open case: name, status, messages, position, address.

/** @returns {any} the element with an id */
export const byId = (id) => document.getElementById(id);

/** A new element with a text or a list of nodes, and properties such as `className` and `onclick`. @returns {any} */
export function element(name, content, properties = {}) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...[content].flat());
  return node;
}

export function caption(name, facts) {
  byId("case-title").replaceChildren(element("b", name), facts ? `  ${facts}` : "");
}

/** Say something in the status line, which screen readers read out. */
export function say(text, failed = false) {
  const status = byId("status");
  status.textContent = status.title = text;
  status.classList.toggle("failed", failed);
}

/** Cover the images with a message; null uncovers them. */
export function message(text, failed = false) {
  const box = byId("message");
  box.hidden = text === null;
  box.textContent = text ?? "";
  box.classList.toggle("failed", failed);
  if (text !== null) say(text.replace("\n", " "), failed);
}

/** Position of the crosshair in mm with the CT and PET there. */
export function position(mm, values, unit) {
  const axes = ["R", "A", "S"].map((axis, place) => `${axis} ${figure(mm[place], 1)}`);
  byId("readout").textContent = `${axes.join("  ")} mm   ${valueText(values, unit)}`;
}

/** The CT and PET under the cursor; nothing beside the images (`ct` is null). */
export function cursor(values, unit) {
  byId("cursor").textContent = values === null || values.ct === null ? "" : `Cursor   ${valueText(values, unit)}`;
}

// `pet` is null without a PET.
function valueText({ ct, pet }, unit) {
  const uptake = pet === null ? "" : unit === "SUV" ? `   SUV ${figure(pet, 2)}` : `   ${figure(pet, 0)} ${unit}`;
  return `HU ${figure(ct, 0)}${uptake}`;
}

const figure = (value, digits) => value.toFixed(digits).replace("-", "−");

/** The case (undefined without one) and the position (null without a readable one) of `#case=ID&pos=x,y,z`. */
export function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  const mm = (address.get("pos") ?? "").split(",").map(Number);
  return { name: address.get("case") ?? undefined, position: mm.length === 3 && mm.every(Number.isFinite) ? mm : null };
}

export function writeAddress(name, mm = null) {
  const position = mm ? `&pos=${mm.map((value) => value.toFixed(1)).join(",")}` : "";
  const address = `#case=${encodeURIComponent(name)}${position}`;
  if (location.hash !== address) history.replaceState(null, "", address);
}
