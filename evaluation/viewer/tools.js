// The tools above the images: what is shown, CT window, PET, uncertainty, ruler and sphere, angle, zoom.

import { CT_WINDOWS, PET_MAPS, petMap } from "./layers.js";
import { byId, say } from "./notices.js";
import { PROJECTION } from "./view.js";

const FUSED_OPACITY = 0.65;
const SIDE = "side";

export class Tools {
  #viewer;
  #case = null;
  ctRange = CT_WINDOWS[0].range;
  angle = 0;
  /** "ruler" or "sphere" while that is drawn by the pointer. @type {"ruler" | "sphere" | null} */
  tool = null;
  pet = { range: [0, 10], map: PET_MAPS[0].key, opacity: FUSED_OPACITY };
  #petUnit = null;
  #turned = 0;

  constructor(viewer) {
    this.#viewer = viewer;
    byId("ct-window").append(...CT_WINDOWS.map(({ name, range }, place) => new Option(`${name} ${range.join(" to ")}`.replace("-", "−"), String(place))));
    byId("pet-map").append(...PET_MAPS.map(({ name, key }) => new Option(name, key)));
    byId("pet-opacity").value = FUSED_OPACITY;
    const on = (id, event, action) => byId(id).addEventListener(event, () => action(byId(id)));
    on("ct-window", "change", ({ value }) => this.#setCt(CT_WINDOWS[Number(value)].range));
    on("pet-map", "change", ({ value }) => this.#setMap(value));
    on("pet-low", "change", () => this.#setRange(byId("pet-low").valueAsNumber, this.pet.range[1]));
    on("pet-high", "change", () => this.#setRange(this.pet.range[0], byId("pet-high").valueAsNumber));
    on("pet-slider", "input", ({ valueAsNumber }) => this.#setRange(this.pet.range[0], valueAsNumber));
    on("pet-opacity", "input", ({ valueAsNumber }) => this.#setPet({ opacity: valueAsNumber }));
    on("shown", "change", ({ value }) => this.show(value));
    on("crosshair", "change", () => this.#viewer.draw());
    for (const tool of ["ruler", "sphere"]) on(tool, "click", () => this.take(tool));
    on("angle", "input", ({ valueAsNumber }) => this.#setAngle(valueAsNumber));
    on("uncertainty", "change", () => this.#viewer.showUncertainty());
    on("uncertainty-opacity", "input", () => this.#viewer.draw());
    on("zoom-in", "click", () => this.#viewer.moves.zoom(1.4));
    on("zoom-out", "click", () => this.#viewer.moves.zoom(1 / 1.4));
    on("zoom-reset", "click", () => this.#viewer.moves.fit());
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
    byId("pet-tools").disabled = byId("shown").disabled = !content.pet.file;
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

  #setMap(map) {
    this.#setPet({ map });
    if (petMap(map).alone && byId("shown").value === "fused") this.show("pet");
  }

  /** Show "fused", "ct", "pet" or the three side by side; by default the next of these. */
  show(shown) {
    const select = byId("shown");
    if (select.disabled) return;
    if (shown) select.value = shown;
    else select.selectedIndex = (select.selectedIndex + 1) % select.length;
    const { view, moves } = this.#viewer;
    view.split = select.value !== SIDE ? null : moves.panel < PROJECTION ? moves.panel : 0;
    this.#viewer.fit();
    say(`Images: ${select.selectedOptions[0].text}.`);
  }

  /** Hide the PET in the planes, or show it over the CT. */
  togglePet() {
    this.show(byId("shown").value === "fused" ? "ct" : "fused");
  }

  toggleCrosshair() {
    byId("crosshair").click();
  }

  /** Draw rulers or spheres with the pointer; the tool that is in hand, or null, puts it back. */
  take(tool) {
    this.tool = this.tool === tool ? null : tool;
    for (const name of ["ruler", "sphere"]) byId(name).setAttribute("aria-pressed", String(name === this.tool));
    if (tool) say(this.tool === null ? "The pointer moves the crosshair." : `Drag in a plane to draw a ${tool}.`);
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
    const uncertaintyOpacity = byId("uncertainty-opacity").valueAsNumber;
    return { ct: this.ctRange, pet: this.pet, uncertaintyOpacity, angle: this.angle, shown: byId("shown").value, crosshair: byId("crosshair").checked };
  }
}
