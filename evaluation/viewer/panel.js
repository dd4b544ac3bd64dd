// The right side: the patient and the answers, contours to switch on and off, lesions to jump to, notes.

import { byId, element } from "./notices.js";

export const REFERENCE = "reference";
const NOTHING = { masks: [], lesions: [], notes: [], clinical: [], answers: { columns: [], rows: [] } };

export class Panel {
  #actions;
  #data = NOTHING;
  #visible = new Set();
  #chosen = null;
  #folds = new Map();
  /** The buttons of the lesions that are listed, with their lesion. @type {Map<HTMLElement, any>} */
  #buttons = new Map();

  /** `actions`: switch(names, on), jump(lesion). */
  constructor(actions) {
    this.#actions = actions;
    const switchAll = (on) => actions.switch(this.#data.masks.map(({ name }) => name), on);
    byId("all-on").addEventListener("click", () => switchAll(true));
    byId("all-off").addEventListener("click", () => switchAll(false));
  }

  /** Show the content of a case.json, without one an empty panel. `visible` are the names of the contours that are on. */
  show(data, visible) {
    this.#data = data ?? NOTHING;
    this.#visible = visible;
    this.#chosen = null;
    const { masks, notes, clinical, answers } = this.#data;
    byId("masks").replaceChildren(...masks.map((mask) => this.#maskRow(mask)));
    byId("contours-section").hidden = masks.length === 0;
    this.#showLesions();
    fill("clinical", clinical.flatMap(([key, text]) => [element("dt", key), element("dd", text)]));
    const heads = ["", ...answers.columns].map((title) => element(title ? "th" : "td", title, title ? { scope: "col" } : {}));
    const rows = answers.rows.map(({ name, texts }) => element("tr", [element("th", name, { scope: "row" }), ...texts.map((text) => element("td", text))]));
    fill("answers", rows.length ? [element("thead", element("tr", heads)), element("tbody", rows)] : []);
    fill("notes", notes.map((text) => element("li", text)));
  }

  /** Set the boxes and lesions after a switch of `visible`. */
  update() {
    byId("masks").querySelectorAll("input").forEach((box, place) => (box.checked = this.#visible.has(this.#data.masks[place].name)));
    this.#showLesions();
  }

  #maskRow(mask) {
    const change = ({ target }) => this.#actions.switch([mask.name], target.checked);
    const box = element("input", [], { type: "checkbox", checked: this.#visible.has(mask.name), onchange: change });
    const label = element("label", [box, swatch(mask.colour), element("span", mask.name, { className: "name" })]);
    const number = this.#data.masks.indexOf(mask);
    return element("li", number <= 9 ? [label, element("kbd", String(number))] : label);
  }

  /** The name of the mask that a digit switches, null without one: the reference is 0, the teams follow from 1. */
  maskOfKey(digit) {
    return this.#data.masks[Number(digit)]?.name ?? null;
  }

  #showLesions() {
    const focused = this.#buttons.get(/** @type {HTMLElement} */ (document.activeElement));
    this.#buttons.clear();
    const own = this.#data.masks.filter(({ name, is_reference: reference }) => !reference && this.#visible.has(name));
    const groups = [this.#group("Reference", REFERENCE), ...own.map(({ name, colour }) => this.#group(name, name, colour))].filter(Boolean);
    byId("lesions").replaceChildren(...(groups.length ? groups : [element("p", "No lesions.", { className: "quiet" })]));
    this.#markChosen();
    for (const [button, lesion] of this.#buttons) if (lesion === focused) button.focus();
  }

  // The reference's lesions stand open; a team's, which mostly repeat them, unfold, at once if any is false.
  #group(title, source, colour = "") {
    const lesions = this.#data.lesions.filter((lesion) => isOf(lesion, source));
    if (lesions.length === 0) return null;
    const wrong = lesions.filter(({ status }) => status === "false").length;
    const count = element("span", `${lesions.length}${wrong ? `, ${wrong} false` : ""}`, { className: "quiet" });
    const heading = element("summary", [...(colour ? [swatch(colour)] : []), element("span", title, { className: "name" }), count]);
    const order = colour ? [...lesions].sort((a, b) => a.status.localeCompare(b.status)) : lesions;
    const open = this.#folds.get(source) ?? (source === REFERENCE || wrong > 0);
    const ontoggle = ({ target }) => this.#folds.set(source, target.open);
    return element("details", [heading, element("ul", order.map((lesion) => this.#lesion(lesion)))], { open, ontoggle });
  }

  #lesion(lesion) {
    const figure = (text) => element("span", text, { className: "figure" });
    const content = [
      element("span", lesion.label, { className: "label" }),
      figure(`${lesion.volume_ml.toFixed(lesion.volume_ml < 10 ? 2 : 1)} ml`),
      figure(lesion.suv_max === null ? "" : `SUVmax ${lesion.suv_max.toFixed(1)}`),
      element("span", this.#outcomes(lesion), { className: "outcomes" }),
    ];
    const button = element("button", content, { type: "button", onclick: () => this.choose(lesion) });
    this.#buttons.set(button, lesion);
    return element("li", button);
  }

  #outcomes({ status }) {
    if (typeof status === "string") return outcome(status === "true", `${status} positive`);
    const teams = Object.keys(status);
    const shown = this.#data.masks.filter(({ name }) => teams.includes(name) && this.#visible.has(name));
    const chips = shown.map(({ name, colour }) => outcome(status[name] === "found", `${status[name]} by ${name}`, colour));
    const found = teams.filter((team) => status[team] === "found").length;
    return teams.length > 1 ? [...chips, element("span", `found by ${found} of ${teams.length}`, { className: "quiet" })] : chips;
  }

  /** Mark a lesion and jump to it. */
  choose(lesion) {
    this.#chosen = lesion;
    this.#markChosen();
    this.#actions.jump(lesion);
  }

  #markChosen() {
    for (const [button, lesion] of this.#buttons) {
      button.ariaCurrent = lesion === this.#chosen ? "true" : null;
      if (lesion === this.#chosen) button.scrollIntoView({ block: "nearest" });
    }
  }

  /** Jump to the lesion `step` places further among those listed. */
  move(step) {
    const shown = [...this.#buttons].filter(([button]) => button.closest("details[open]")).map(([, lesion]) => lesion);
    if (shown.length === 0) return;
    const place = shown.indexOf(this.#chosen);
    this.choose(shown[place < 0 ? 0 : (place + step + shown.length) % shown.length]);
  }
}

/** Whether a lesion is the reference's or a certain team's own. A team may be called "reference" as well. */
export function isOf(lesion, source) {
  return lesion.source === source && (typeof lesion.status === "string") === (source !== REFERENCE);
}

/** A mark with its text, of which a team's chip shows the colour alone. */
function outcome(isGood, text, colour = "") {
  const mark = isGood ? "✓" : "✗";
  const content = colour
    ? [swatch(colour), element("span", mark, { ariaHidden: "true" }), element("span", `${text}, `, { className: "unseen" })]
    : element("span", `${mark} ${text}`);
  return element("span", content, { className: isGood ? "outcome good" : "outcome bad", title: text });
}

function swatch(colour) {
  return element("span", "", { className: "swatch", style: `background: ${colour}`, ariaHidden: "true" });
}

/** Fill a list; its section is hidden while it is empty. */
function fill(id, items) {
  byId(id).replaceChildren(...items);
  byId(`${id}-section`).hidden = items.length === 0;
}
