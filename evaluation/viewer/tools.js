// The tools above the images: what is shown, CT window, PET, uncertainty, ruler and sphere, angle, zoom.

import { CT_WINDOWS, PET_MAPS, petMap } from "./layers.js";
import { byId, say } from "./notices.js";

const ZOOM = 1.4;

export class Tools {
  #viewer;
  #maps = [];
  #unit = null;
  #turned = 0;
  #ctRange = CT_WINDOWS[0].range;
  #petRange = [0, 10];
  /** "ruler" or "sphere" while that is drawn by the pointer. @type {"ruler" | "sphere" | null} */
  tool = null;

  constructor(viewer) {
    this.#viewer = viewer;
    byId("ct-window").append(...CT_WINDOWS.map(({ name, range }) => new Option(`${name} ${range.join(" to ")}`.replace("-", "−"))));
    byId("pet-map").append(...PET_MAPS.map(({ name, key }) => new Option(name, key)));
    const on = (id, event, action) => byId(id).addEventListener(event, () => action(byId(id)));
    for (const id of ["tools", "angle"]) on(id, "input", () => viewer.draw());
    on("ct-window", "change", () => this.nextWindow(0));
    on("pet-map", "change", ({ value }) => petMap(value).alone && byId("shown").value === "fused" && this.show("pet"));
    on("pet-low", "change", ({ valueAsNumber }) => this.#setRange(valueAsNumber, this.#petRange[1]));
    for (const id of ["pet-high", "pet-slider"]) on(id, "change", ({ valueAsNumber }) => this.#setRange(this.#petRange[0], valueAsNumber));
    on("pet-slider", "input", ({ valueAsNumber }) => this.#setRange(this.#petRange[0], valueAsNumber));
    on("shown", "change", ({ value }) => this.show(value));
    for (const tool of ["ruler", "sphere"]) on(tool, "click", () => this.take(tool));
    on("uncertainty", "change", () => viewer.showUncertainty());
    on("zoom-in", "click", () => viewer.view.zoomBy(ZOOM));
    on("zoom-out", "click", () => viewer.view.zoomBy(1 / ZOOM));
    on("zoom-reset", "click", () => viewer.view.fit(viewer.lesionBox()));
  }

  /** Take over what a case brings: ranges, the PET's unit, uncertainty maps. What a person has set stays. */
  adopt({ pet, uncertainty }) {
    if (this.#unit !== pet.unit) {
      byId("pet-unit").textContent = this.#unit = pet.unit;
      const max = pet.window[1] * 2.5;
      const step = max / 50;
      Object.assign(byId("pet-slider"), { min: step, max, step });
      byId("pet-low").step = byId("pet-high").step = String(step);
      this.#setRange(...pet.window);
    }
    byId("pet-tools").disabled = byId("shown").disabled = !pet.file;
    // A map that is shown stays chosen where the next case has it as well.
    const select = byId("uncertainty");
    const chosen = select.selectedOptions[0]?.text;
    this.#maps = uncertainty;
    byId("uncertainty-tools").hidden = uncertainty.length === 0;
    select.replaceChildren(new Option("none"), ...uncertainty.map(({ team, title }) => new Option(`${team}: ${title}`)));
    select.selectedIndex = Math.max(0, [...select.options].findIndex(({ text }) => text === chosen));
  }

  /** Show the CT window that is `step` places further in the list. */
  nextWindow(step = 1) {
    const select = byId("ct-window");
    select.selectedIndex = (select.selectedIndex + step) % CT_WINDOWS.length;
    this.#ctRange = CT_WINDOWS[select.selectedIndex].range;
    this.#viewer.draw();
    say(`CT window ${CT_WINDOWS[select.selectedIndex].name}.`);
  }

  /** Width by the horizontal, level by the vertical way of the mouse. */
  dragWindow(dx, dy) {
    const [low, high] = this.#ctRange;
    const width = Math.max(1, high - low + 2 * dx);
    const level = (low + high) / 2 + dy;
    this.#ctRange = [level - width / 2, level + width / 2];
    this.#viewer.draw();
    say(`CT window: width ${Math.round(width)}, level ${Math.round(level)}.`);
  }

  /** Show "fused", "ct", "pet" or the three side by side; by default the next of these. */
  show(shown) {
    const select = byId("shown");
    if (select.disabled) return;
    if (shown) select.value = shown;
    else select.selectedIndex = (select.selectedIndex + 1) % select.length;
    this.#viewer.view.splitUp(select.value === "side");
    say(`Images: ${select.selectedOptions[0].text}.`);
  }

  /** Hide the PET in the planes, or show it over the CT. */
  togglePet() {
    this.show(byId("shown").value === "fused" ? "ct" : "fused");
  }

  /** Draw rulers or spheres with the pointer; the tool that is in hand, or null, puts it back. */
  take(tool) {
    this.tool = this.tool === tool ? null : tool;
    for (const name of ["ruler", "sphere"]) byId(name).ariaPressed = String(name === this.tool);
    if (tool) say(this.tool === null ? "The pointer moves the crosshair." : `Drag in a plane to draw a ${tool}.`);
  }

  // An unusable range puts the earlier one back.
  #setRange(low, high) {
    if (Number.isFinite(low) && high > low) this.#petRange = [low, high];
    const [from, to] = this.#petRange;
    byId("pet-slider").value = to;
    byId("pet-low").value = Number(from.toPrecision(4));
    byId("pet-high").value = Number(to.toPrecision(4));
    this.#viewer.draw();
  }

  turn(degrees) {
    const slider = byId("angle");
    const step = Number(slider.step);
    const turned = Math.trunc((this.#turned + degrees) / step) * step;
    this.#turned += degrees - turned;
    slider.value = (((slider.valueAsNumber + turned) % 360) + 360) % 360;
    this.#viewer.draw();
  }

  /** The uncertainty map that is chosen, null for none. */
  get uncertainty() {
    return this.#maps[byId("uncertainty").selectedIndex - 1] ?? null;
  }

  /** What the images are drawn with. @returns {import("./stage.js").Settings} */
  get settings() {
    return {
      ct: this.#ctRange,
      pet: { range: this.#petRange, map: byId("pet-map").value, opacity: byId("pet-opacity").valueAsNumber },
      uncertaintyOpacity: byId("uncertainty-opacity").valueAsNumber,
      angle: byId("angle").valueAsNumber,
      shown: byId("shown").value,
      crosshair: byId("crosshair").checked,
    };
  }
}
