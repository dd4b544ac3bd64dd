// The right side: contours to switch on and off, lesions to jump to, notes.

import { byId, element } from "./notices.js";

export const REFERENCE = "reference";
const OUTCOMES = {
  found: { mark: "✓", good: true },
  missed: { mark: "✗", good: false },
  true: { mark: "✓", good: true },
  false: { mark: "✗", good: false },
};

export class Panel {
  #actions;
  #data = null;
  #visible = new Set();
  #chosen = null;
  #folds = new Map();

  /** `actions`: switch(names, on), jump(lesion). */
  constructor(actions) {
    this.#actions = actions;
    this.masks = byId("masks");
    this.lesions = byId("lesions");
    byId("all-on").addEventListener("click", () => this.#switchAll(true));
    byId("all-off").addEventListener("click", () => this.#switchAll(false));
  }

  show(data, visible) {
    this.#data = data;
    this.#visible = visible;
    this.#chosen = null;
    this.#showMasks();
    this.#showLesions();
    const notes = byId("notes");
    notes.replaceChildren(...data.notes.map((text) => element("li", text)));
    byId("notes-section").hidden = data.notes.length === 0;
  }

  clear() {
    this.show({ masks: [], lesions: [], notes: [] }, this.#visible);
  }

  #switchAll(on) {
    this.#actions.switch((this.#data?.masks ?? []).map(({ name }) => name), on);
  }

  #showMasks() {
    const rows = this.#data.masks.map((mask, place) => this.#maskRow(mask, place));
    this.masks.replaceChildren(...(rows.length ? rows : [element("li", "No masks for this case.", "quiet")]));
    byId("line-key").hidden = rows.length === 0;
  }

  #maskRow(mask, place) {
    const row = document.createElement("li");
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = this.#visible.has(mask.name);
    box.dataset.place = place;
    box.addEventListener("change", () => this.#actions.switch([mask.name], box.checked));
    label.append(box, swatch(mask.colour), element("span", mask.name, "name"));
    row.append(label);
    const key = keyOf(this.#data.masks, place);
    if (key !== null) row.append(element("kbd", key));
    return row;
  }

  /** Set the boxes and lesions after a switch of `visible`. */
  update() {
    for (const box of this.masks.querySelectorAll("input")) box.checked = this.#visible.has(this.#data.masks[Number(box.dataset.place)].name);
    this.#showLesions();
  }

  /** The name of the mask that a digit switches; null without one. */
  maskOfKey(digit) {
    const masks = this.#data?.masks ?? [];
    const place = masks.findIndex((_, index) => keyOf(masks, index) === digit);
    return place < 0 ? null : masks[place].name;
  }

  #showLesions() {
    const focus = document.activeElement?.getAttribute("data-lesion") ?? undefined;
    const own = this.#data.masks.filter(({ name, is_reference: reference }) => !reference && this.#visible.has(name));
    const groups = [this.#group("Reference", REFERENCE), ...own.map(({ name, colour }) => this.#group(name, name, colour))].filter(Boolean);
    this.lesions.replaceChildren(...(groups.length ? groups : [element("p", "No lesions.", "quiet")]));
    this.#markChosen();
    if (focus !== undefined) this.lesions.querySelector(`[data-lesion="${focus}"]`)?.focus();
  }

  // The reference's lesions stand open; a team's, which mostly repeat them, unfold, at once if any is false.
  #group(title, source, colour) {
    const lesions = this.#data.lesions.filter((lesion) => isOf(lesion, source));
    if (lesions.length === 0) return null;
    const wrong = lesions.filter(({ status }) => status === "false").length;
    const group = document.createElement("details");
    group.open = this.#folds.get(source) ?? (source === REFERENCE || wrong > 0);
    group.addEventListener("toggle", () => this.#folds.set(source, group.open));
    const heading = element("summary", "");
    if (colour) heading.append(swatch(colour));
    heading.append(element("span", title, "name"), element("span", `${lesions.length}${wrong ? `, ${wrong} false` : ""}`, "quiet"));
    const list = document.createElement("ul");
    const order = colour ? [...lesions].sort((a, b) => a.status.localeCompare(b.status)) : lesions;
    list.append(...order.map((lesion) => this.#lesion(lesion)));
    group.append(heading, list);
    return group;
  }

  #lesion(lesion) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.lesion = this.#data.lesions.indexOf(lesion);
    button.addEventListener("click", () => this.choose(lesion));
    const uptake = lesion.suv_max === null ? "" : `SUVmax ${lesion.suv_max.toFixed(1)}`;
    button.append(
      element("span", lesion.label, "label"),
      element("span", `${lesion.volume_ml.toFixed(lesion.volume_ml < 10 ? 2 : 1)} ml`, "figure"),
      element("span", uptake, "figure"),
      this.#outcomes(lesion),
    );
    item.append(button);
    return item;
  }

  #outcomes(lesion) {
    const line = element("span", "", "outcomes");
    if (typeof lesion.status === "string") {
      line.append(outcome(lesion.status, `${lesion.status} positive`));
      return line;
    }
    const entries = Object.entries(lesion.status);
    const shown = entries.filter(([team]) => this.#visible.has(team));
    line.append(...shown.map(([team, status]) => outcome(status, `${status} by ${team}`, this.#colourOf(team), team)));
    if (entries.length > 1) {
      const found = entries.filter(([, status]) => status === "found").length;
      line.append(element("span", `found by ${found} of ${entries.length}`, "quiet"));
    }
    return line;
  }

  #colourOf(team) {
    return this.#data.masks.find(({ name }) => name === team)?.colour;
  }

  /** Mark a lesion and jump to it. */
  choose(lesion) {
    this.#chosen = lesion;
    this.#markChosen();
    this.#actions.jump(lesion);
  }

  #markChosen() {
    for (const button of this.lesions.querySelectorAll("button")) {
      const chosen = this.#data.lesions[Number(button.dataset.lesion)] === this.#chosen;
      if (chosen) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
      if (chosen) button.scrollIntoView({ block: "nearest" });
    }
  }

  /** Jump to the lesion `step` places further among those listed. */
  move(step) {
    const shown = [...this.lesions.querySelectorAll("details[open] button")].map((button) => this.#data.lesions[Number(button.dataset.lesion)]);
    if (shown.length === 0) return;
    const place = shown.indexOf(this.#chosen);
    this.choose(shown[place < 0 ? 0 : (place + step + shown.length) % shown.length]);
  }
}

/** Whether a lesion is the reference's or a certain team's own. A team may be called "reference" as well. */
export function isOf(lesion, source) {
  return lesion.source === source && (typeof lesion.status === "string") === (source !== REFERENCE);
}

// The reference is 0, the teams follow from 1.
function keyOf(masks, place) {
  if (masks[place].is_reference) return "0";
  const number = masks.slice(0, place + 1).filter(({ is_reference: reference }) => !reference).length;
  return number <= 9 ? String(number) : null;
}

function outcome(status, text, colour, team) {
  const { mark, good } = OUTCOMES[status] ?? { mark: "?", good: false };
  const chip = element("span", "", good ? "outcome good" : "outcome bad");
  if (colour) chip.append(swatch(colour));
  const sign = element("span", team ? mark : `${mark} ${text}`);
  chip.append(sign);
  chip.title = text;
  if (team) {
    sign.setAttribute("aria-hidden", "true");
    chip.append(element("span", `${text}, `, "unseen"));
  }
  return chip;
}

function swatch(colour) {
  const box = element("span", "", "swatch");
  box.style.backgroundColor = colour;
  box.setAttribute("aria-hidden", "true");
  return box;
}
