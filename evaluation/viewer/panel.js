// The right side: the patient and the answers, contours to switch on and off, lesions to jump to, notes.

import { byId, element } from "./notices.js";

export const REFERENCE = "reference";
const GOOD = ["found", "true"];

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
    const switchAll = (on) => actions.switch((this.#data?.masks ?? []).map(({ name }) => name), on);
    byId("all-on").addEventListener("click", () => switchAll(true));
    byId("all-off").addEventListener("click", () => switchAll(false));
  }

  show(data, visible) {
    this.#data = data;
    this.#visible = visible;
    this.#chosen = null;
    this.#showMasks();
    this.#showLesions();
    this.#showPatient();
    byId("notes").replaceChildren(...data.notes.map((text) => element("li", text)));
    byId("notes-section").hidden = data.notes.length === 0;
  }

  clear() {
    this.show({ masks: [], lesions: [], notes: [], clinical: [], answers: { columns: [], rows: [] } }, this.#visible);
  }

  #showPatient() {
    const { clinical, answers } = this.#data;
    byId("clinical").replaceChildren(...clinical.flatMap(([key, text]) => [element("dt", key), element("dd", text)]));
    const row = (kind, name, texts) => element("tr", [cell(name, kind), ...texts.map((text) => (kind === "col" ? cell(text, kind) : element("td", text)))]);
    const rows = answers.rows.map(({ name, texts }) => row("row", name, texts));
    byId("answers").replaceChildren(element("thead", [row("col", "", answers.columns)]), element("tbody", rows));
    byId("answers-section").hidden = rows.length === 0;
    byId("clinical-section").hidden = clinical.length === 0;
  }

  #showMasks() {
    const rows = this.#data.masks.map((mask, place) => this.#maskRow(mask, place));
    this.masks.replaceChildren(...(rows.length ? rows : [element("li", "No masks for this case.", "quiet")]));
    byId("line-key").hidden = rows.length === 0;
  }

  #maskRow(mask, place) {
    const box = element("input", "");
    box.type = "checkbox";
    box.checked = this.#visible.has(mask.name);
    box.dataset.place = place;
    box.addEventListener("change", () => this.#actions.switch([mask.name], box.checked));
    const label = element("label", [box, swatch(mask.colour), element("span", mask.name, "name")]);
    const key = keyOf(this.#data.masks, place);
    return element("li", key === null ? [label] : [label, element("kbd", key)]);
  }

  /** Set the boxes and lesions after a switch of `visible`. */
  update() {
    for (const box of this.masks.querySelectorAll("input")) box.checked = this.#visible.has(this.#data.masks[Number(box.dataset.place)].name);
    this.#showLesions();
  }

  /** The name of the mask that a digit switches; null without one. */
  maskOfKey(digit) {
    const masks = this.#data?.masks ?? [];
    return masks.find((_, index) => keyOf(masks, index) === digit)?.name ?? null;
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
    const count = element("span", `${lesions.length}${wrong ? `, ${wrong} false` : ""}`, "quiet");
    const heading = element("summary", [...(colour ? [swatch(colour)] : []), element("span", title, "name"), count]);
    const order = colour ? [...lesions].sort((a, b) => a.status.localeCompare(b.status)) : lesions;
    const group = element("details", [heading, element("ul", order.map((lesion) => this.#lesion(lesion)))]);
    group.open = this.#folds.get(source) ?? (source === REFERENCE || wrong > 0);
    group.addEventListener("toggle", () => this.#folds.set(source, group.open));
    return group;
  }

  #lesion(lesion) {
    const button = element("button", [
      element("span", lesion.label, "label"),
      element("span", `${lesion.volume_ml.toFixed(lesion.volume_ml < 10 ? 2 : 1)} ml`, "figure"),
      element("span", lesion.suv_max === null ? "" : `SUVmax ${lesion.suv_max.toFixed(1)}`, "figure"),
      this.#outcomes(lesion),
    ]);
    button.type = "button";
    button.dataset.lesion = this.#data.lesions.indexOf(lesion);
    button.addEventListener("click", () => this.choose(lesion));
    return element("li", [button]);
  }

  #outcomes(lesion) {
    if (typeof lesion.status === "string") return element("span", [outcome(lesion.status, `${lesion.status} positive`)], "outcomes");
    const entries = Object.entries(lesion.status);
    const colourOf = (team) => this.#data.masks.find(({ name }) => name === team)?.colour;
    const shown = entries.filter(([team]) => this.#visible.has(team));
    const chips = shown.map(([team, status]) => outcome(status, `${status} by ${team}`, colourOf(team), team));
    const found = entries.filter(([, status]) => status === "found").length;
    if (entries.length > 1) chips.push(element("span", `found by ${found} of ${entries.length}`, "quiet"));
    return element("span", chips, "outcomes");
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
  const good = GOOD.includes(status);
  const mark = good ? "✓" : "✗";
  const sign = element("span", team ? mark : `${mark} ${text}`);
  const chip = element("span", colour ? [swatch(colour), sign] : [sign], good ? "outcome good" : "outcome bad");
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

function cell(text, scope) {
  const head = element(text ? "th" : "td", text);
  if (text) head.scope = scope;
  return head;
}
