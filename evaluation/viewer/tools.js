// The tools above the images: CT window, PET, uncertainty, angle, zoom, theme.

import { CT_WINDOWS, PET_MAPS, petMap } from "./layers.js";
import { byId, say } from "./notices.js";

const FUSED_OPACITY = 0.55;

export class Tools {
  #viewer;
  #case = null;
  ctRange = CT_WINDOWS[0].range;
  angle = 0;
  pet = { range: [0, 10], map: PET_MAPS[0].key, opacity: FUSED_OPACITY };
  #petOpacity = FUSED_OPACITY;
  #petUnit = null;
  #turned = 0;

  constructor(viewer) {
    this.#viewer = viewer;
    byId("ct-window").append(...CT_WINDOWS.map(({ name, range }, place) => new Option(`${name} ${range.join(" to ")}`.replace("-", "−"), String(place))));
    byId("pet-map").append(...PET_MAPS.map(({ name, key }) => new Option(name, key)));
    byId("pet-opacity").value = this.#petOpacity;
    const on = (id, event, action) => byId(id).addEventListener(event, () => action(byId(id)));
    on("ct-window", "change", ({ value }) => this.#setCt(CT_WINDOWS[Number(value)].range));
    on("pet-map", "change", ({ value }) => this.#setMap(value));
    on("pet-low", "change", () => this.#setRange(byId("pet-low").valueAsNumber, this.pet.range[1]));
    on("pet-high", "change", () => this.#setRange(this.pet.range[0], byId("pet-high").valueAsNumber));
    on("pet-slider", "input", ({ valueAsNumber }) => this.#setRange(this.pet.range[0], valueAsNumber));
    on("pet-opacity", "input", ({ valueAsNumber }) => this.#setOpacity(valueAsNumber));
    on("pet-shown", "change", ({ checked }) => this.#setPet({ opacity: checked ? this.#petOpacity : 0 }));
    on("angle", "input", ({ valueAsNumber }) => this.#setAngle(valueAsNumber));
    on("uncertainty", "change", () => this.#viewer.showUncertainty());
    on("uncertainty-opacity", "input", () => this.#viewer.draw());
    on("zoom-in", "click", () => this.#viewer.moves.zoom(1.4));
    on("zoom-out", "click", () => this.#viewer.moves.zoom(1 / 1.4));
    on("zoom-reset", "click", () => this.#viewer.moves.resetZoom());
  }

  /** Take over what a case brings: ranges, the PET's unit, uncertainty maps. What a person has set stays. */
  adopt(content) {
    this.#case = content;
    if (this.#petUnit !== content.pet.unit) {
      this.#petUnit = content.pet.unit;
      this.pet.range = content.pet.window;
      this.#showRange(content.pet.window[1] * 2.5);
    }
    byId("pet-unit").textContent = content.pet.unit;
    byId("pet-tools").disabled = !content.pet.file;
    this.#listMaps(content.uncertainty);
  }

  // A map that is shown stays chosen where the next case has it as well.
  #listMaps(maps) {
    const select = byId("uncertainty");
    const chosen = select.selectedOptions[0]?.text;
    byId("uncertainty-tools").hidden = maps.length === 0;
    select.replaceChildren(new Option("none", ""), ...maps.map(({ team, title }, place) => new Option(`${team}: ${title}`, place)));
    const again = [...select.options].find(({ text }) => text === chosen);
    if (again) again.selected = true;
  }

  #setCt(range) {
    this.ctRange = range;
    this.#viewer.draw();
  }

  nextWindow() {
    const select = byId("ct-window");
    select.selectedIndex = (select.selectedIndex + 1) % CT_WINDOWS.length;
    this.#setCt(CT_WINDOWS[select.selectedIndex].range);
    say(`CT window ${CT_WINDOWS[select.selectedIndex].name}.`);
  }

  /** Width by the horizontal, level by the vertical way of the mouse. */
  dragWindow(dx, dy) {
    const [low, high] = this.ctRange;
    const width = Math.max(1, high - low + 2 * dx);
    const level = (low + high) / 2 + dy;
    this.#setCt([level - width / 2, level + width / 2]);
    say(`CT window: width ${Math.round(width)}, level ${Math.round(level)}.`);
  }

  #setPet(change) {
    Object.assign(this.pet, change);
    this.#viewer.draw();
  }

  #setMap(key) {
    const [before, after] = [this.pet.map, key].map((one) => Boolean(petMap(one).alone));
    this.pet.map = key;
    this.#setOpacity(before === after ? this.#petOpacity : after ? 1 : FUSED_OPACITY);
  }

  #setOpacity(opacity) {
    this.#petOpacity = opacity;
    byId("pet-opacity").value = opacity;
    byId("pet-shown").checked = true;
    this.#setPet({ opacity });
  }

  togglePet() {
    const box = byId("pet-shown");
    if (byId("pet-tools").disabled) return;
    box.click();
    say(box.checked ? "PET shown." : "PET hidden.");
  }

  #setRange(low, high) {
    if (!Number.isFinite(low) || !Number.isFinite(high) || high <= low) return this.#showRange();
    this.#setPet({ range: [low, high] });
    this.#showRange();
  }

  #showRange(largest = Number(byId("pet-slider").max)) {
    const [low, high] = this.pet.range;
    const step = largest / 50;
    Object.assign(byId("pet-slider"), { min: step, max: largest, step, value: high });
    Object.assign(byId("pet-low"), { step, value: Number(low.toPrecision(4)) });
    Object.assign(byId("pet-high"), { step, value: Number(high.toPrecision(4)) });
  }

  #setAngle(angle) {
    this.angle = angle;
    byId("angle").value = angle;
    this.#viewer.draw();
  }

  turn(degrees) {
    const step = Number(byId("angle").step);
    const turned = Math.trunc((this.#turned + degrees) / step) * step;
    this.#turned += degrees - turned;
    if (turned !== 0) this.#setAngle((((this.angle + turned) % 360) + 360) % 360);
  }

  /** The uncertainty map that is chosen, null for none. */
  get uncertainty() {
    const { value } = byId("uncertainty");
    return value === "" ? null : this.#case.uncertainty[Number(value)];
  }

  /** What the images are drawn with. @returns {import("./stage.js").Settings} */
  get settings() {
    return { ct: this.ctRange, pet: this.pet, uncertaintyOpacity: byId("uncertainty-opacity").valueAsNumber, angle: this.angle };
  }
}
