// The page: opens cases, holds what a person has set, and draws when something changes.

import { CaseList } from "./cases.js";
import { Contours } from "./contours.js";
import { fetchBytes, fetchJson, maskBox, readVolume } from "./files.js";
import { listenToKeys } from "./keys.js";
import { valueAt } from "./layers.js";
import { Measurements } from "./measure.js";
import * as notices from "./notices.js";
import { byId } from "./notices.js";
import { Panel, REFERENCE, isOf } from "./panel.js";
import { Pointer } from "./pointer.js";
import { Projection } from "./projection.js";
import { Stage } from "./stage.js";
import { Tools } from "./tools.js";
import { PROJECTION, View } from "./view.js";

// As many teams have their contours on at first; more hide the image.
const TEAMS_SHOWN_AT_FIRST = 3;
// Around the lesions in the first view.
const MARGIN_MM = 25;
// The server prepares the next case meanwhile, unless a person opens another one at once.
const PREPARES_AFTER_MS = 1000;

class Viewer {
  #opening = null;
  #contours = new Map();
  // Masks whose contours are on in this case, and what a person has chosen by name in any case.
  #visible = new Set();
  #choices = new Map();
  #hidden = false;
  #scheduled = false;
  case = null;
  /** Volumes of the open case. @type {import("./stage.js").Scene | null} */
  scene = null;
  view = new View((isLaidOut) => (isLaidOut ? this.draw() : this.fit()));

  constructor(data) {
    this.stage = new Stage(byId("images"), this.view);
    this.tools = new Tools(this);
    this.measurements = new Measurements(this);
    this.panel = new Panel({ switch: (names, on) => this.switch(names, on), jump: (lesion) => this.view.jump(lesion.centroid_ras_mm) });
    this.cases = new CaseList(data, (name) => this.open(name));
    for (const { name } of data.teams.slice(TEAMS_SHOWN_AT_FIRST)) this.#choices.set(name, false);
    this.pointer = new Pointer(byId("stage"), this);
    this.fit();
    new ResizeObserver(() => this.fit()).observe(byId("stage"));
    window.addEventListener("hashchange", () => this.openFromAddress());
    listenToKeys(this);
  }

  /** Open the case of the address (`#case=ID&pos=x,y,z`), or the first one. */
  async openFromAddress() {
    const { name = this.cases.first, position } = notices.readAddress();
    if (name === null) return notices.message("No cases.");
    if (this.case?.case !== name) await this.open(name, position);
    else if (position) this.view.jump(position);
  }

  /** Load and show a case; a case that is opened meanwhile ends this one. */
  async open(name, position = null) {
    this.#opening?.abort();
    const opening = (this.#opening = new AbortController());
    const started = performance.now();
    this.cases.select(name);
    notices.caption(name, "");
    notices.message(`Opening ${name}: the server reads its images …`);
    try {
      await this.#load(name, position, opening.signal);
      if (opening.signal.aborted) return;
      notices.message(null);
      this.fit();
      const box = this.lesionBox();
      if (box) this.view.zoomTo(box);
      if (position) this.view.reveal();
      this.draw();
      if (this.tools.uncertainty) await this.showUncertainty();
      await painted();
      if (opening.signal.aborted) return;
      notices.say(`${this.#summary()} Opened in ${((performance.now() - started) / 1000).toFixed(1)} s.`);
      setTimeout(() => this.#prepareNext(opening.signal), PREPARES_AFTER_MS);
    } catch (problem) {
      if (!opening.signal.aborted) this.#fail(name, problem);
    }
  }

  async #load(name, position, signal) {
    const folder = folderOf(name);
    const content = await fetchJson(`${folder}case.json`, signal);
    const masks = content.masks.filter(({ name: mask }) => this.#choices.get(mask) ?? true);
    let bytes = 0;
    const progress = (count) => notices.message(`Opening ${name} … ${((bytes += count) / 1e6).toFixed(1)} MB`);
    const load = (file) => this.#fetchVolume(folder, file, signal, progress);
    const [ct, pet, ...volumes] = await Promise.all([
      load(content.ct.file),
      content.pet.file ? load(content.pet.file) : null,
      ...masks.map(({ file }) => load(file)),
    ]);
    if (signal.aborted) return;
    this.tools.adopt(content);
    this.measurements.remove();
    this.case = { ...content, folder };
    this.scene = { ct, pet, projection: pet && new Projection(pet), uncertainty: null, measured: null };
    this.#contours.clear();
    this.#visible = new Set(masks.map(({ name: mask }) => mask));
    masks.forEach((mask, place) => this.#addContours(mask, volumes[place]));
    this.panel.show(content, this.#visible);
    notices.caption(name, content.facts);
    this.view.setGrid(ct.grid);
    this.view.position = position ?? this.#startPosition() ?? this.view.middle;
  }

  async #fetchVolume(folder, file, signal, progress) {
    return readVolume(await fetchBytes(folder + encodeURIComponent(file), signal, progress), file);
  }

  // A case that cannot be shown says so when it is opened.
  #prepareNext(signal) {
    const next = this.cases.next;
    if (!signal.aborted && next !== null) fetch(`${folderOf(next)}case.json`, { signal }).catch(() => {});
  }

  /** A further volume of the open case; null if another case is opened meanwhile or, with a message, if it cannot be read. */
  async #loadFurther(file) {
    const current = this.case;
    try {
      const volume = await this.#fetchVolume(current.folder, file, this.#opening.signal);
      return this.case === current ? volume : null;
    } catch (problem) {
      if (this.case === current) notices.say(problem.message, true);
      return null;
    }
  }

  /** The PET's own voxels, loaded when they are first needed; null without a PET. */
  async measuredPet() {
    const { scene, case: current } = this;
    if (!current?.pet.measured) return null;
    return (scene.measured ??= await this.#loadFurther(current.pet.measured));
  }

  /**
   * Lowest and highest mm around the reference's lesions or, without any, those of the teams shown; null without any.
   * @returns {[number[], number[]] | null}
   */
  lesionBox() {
    const boxes = [...this.#contours.values()].filter(({ contours }) => contours.mask);
    const reference = boxes.filter(({ isReference }) => isReference);
    const masks = (reference.length ? reference : boxes).map(({ contours }) => contours.mask);
    if (masks.length === 0) return null;
    const { origin, spacing } = this.view.grid;
    const side = (pick, place) => origin.map((first, axis) => pick(...masks.map((mask) => first + spacing[axis] * place(mask, axis))));
    const low = side(Math.min, (mask, axis) => mask.low[axis]);
    const high = side(Math.max, (mask, axis) => mask.low[axis] + mask.size[axis] - 1);
    return [low.map((mm) => mm - MARGIN_MM), high.map((mm) => mm + MARGIN_MM)];
  }

  /** Move the crosshair to the hottest voxel behind a canvas pixel of the projection. */
  goToHottest(x, y) {
    const mm = this.scene?.projection?.hottestAt(this.view.panels[PROJECTION], this.tools.settings.angle, x, y);
    if (mm) this.view.jump(mm);
  }

  /** Show the values at a position under the cursor; null for none. */
  showCursor(mm) {
    if (this.scene) notices.cursor(mm && this.#valuesAt(this.view.voxelAt(mm)), this.case.pet.unit);
  }

  #valuesAt(voxel) {
    const { ct, pet } = this.scene;
    return { ct: valueAt(ct, voxel), pet: pet && valueAt(pet, voxel) };
  }

  // The largest lesion of the reference is what one wants to see first.
  #startPosition() {
    const reference = this.case.lesions.filter((lesion) => isOf(lesion, REFERENCE));
    const lesions = reference.length ? reference : [...this.case.lesions];
    return lesions.sort((a, b) => b.volume_ml - a.volume_ml)[0]?.centroid_ras_mm;
  }

  #summary() {
    const { masks, lesions } = this.case;
    const reference = lesions.filter((lesion) => isOf(lesion, REFERENCE)).length;
    return masks.length ? `${reference} lesion${reference === 1 ? "" : "s"}.` : "No masks.";
  }

  #fail(name, problem) {
    this.case = this.scene = null;
    this.#contours.clear();
    this.measurements.remove();
    this.view.setGrid(null);
    this.stage.clear();
    this.panel.show(null, this.#visible);
    byId("readout").textContent = byId("cursor").textContent = "";
    notices.message(`${name} cannot be shown.\n${problem.message}`, true);
    notices.writeAddress(name);
  }

  #addContours(mask, volume) {
    const { name, colour, is_reference: isReference } = mask;
    this.#contours.set(name, { name, colour, isReference, contours: new Contours(maskBox(volume, this.scene.ct.grid)) });
  }

  toggle(name) {
    return this.switch([name], !this.#visible.has(name));
  }

  /** Switch contours on or off; a mask's file is loaded when it is first needed. */
  async switch(names, on) {
    for (const name of names) {
      this.#choices.set(name, on);
      if (on) this.#visible.add(name);
      else this.#visible.delete(name);
    }
    this.#hidden = false;
    this.panel.update();
    notices.say(`${names.length === 1 ? `Contour of ${names[0]}` : "Contours"} ${on ? "on" : "off"}.`);
    const absent = (this.case?.masks ?? []).filter(({ name }) => this.#visible.has(name) && !this.#contours.has(name));
    await Promise.all(absent.map((mask) => this.#loadContours(mask)));
    this.draw();
  }

  async #loadContours(mask) {
    const volume = await this.#loadFurther(mask.file);
    if (volume) this.#addContours(mask, volume);
  }

  hideContours() {
    this.#hidden = !this.#hidden;
    this.draw();
    notices.say(this.#hidden ? "Contours hidden." : "Contours shown.");
  }

  /** Show the map that is chosen in the tools, or none. */
  async showUncertainty() {
    const map = this.tools.uncertainty;
    const volume = map && (await this.#loadFurther(map.file));
    if (map && !volume) return;
    this.scene.uncertainty = map && { volume, range: map.window };
    this.draw();
    notices.say(map ? `Uncertainty of ${map.team} shown: ${map.title}.` : "Uncertainty hidden.");
  }

  /** Give the canvas the size of the stage, lay the panels out and draw. */
  fit() {
    const box = byId("stage");
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [box.clientWidth, box.clientHeight].map((length) => Math.round(length * ratio));
    this.stage.resize(width, height, ratio);
    if (!this.scene) return;
    this.view.layOut(width, height);
    this.#placeAngle(ratio);
    this.drawNow();
  }

  // The slider that turns the projection lies in its panel.
  #placeAngle(ratio) {
    const slider = byId("angle");
    const panel = this.view.panels[PROJECTION];
    slider.hidden = !this.scene.pet || !panel;
    if (slider.hidden) return;
    const { left, top, width, height } = panel;
    slider.style.left = `${(left + width) / ratio - slider.offsetWidth - 10}px`;
    slider.style.top = `${(top + height) / ratio - slider.offsetHeight - 10}px`;
  }

  /** Draw with the next frame of the screen. */
  draw() {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.drawNow();
    });
  }

  drawNow() {
    if (!this.scene || !this.view.panels.length) return;
    const masks = this.#hidden ? [] : this.case.masks.filter(({ name }) => this.#visible.has(name));
    const outlines = masks.map(({ name }) => this.#contours.get(name)).filter(Boolean);
    this.stage.draw(this.scene, this.tools.settings, outlines, this.measurements);
    const { position } = this.view;
    notices.position(position, this.#valuesAt(this.view.voxelAt()), this.case.pet.unit);
    notices.writeAddress(this.case.case, position);
  }
}

const folderOf = (name) => `case/${encodeURIComponent(name)}/`;

// Two frames: the first one draws, the second begins when that is on the screen.
function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

async function start() {
  notices.message("Reading the list of cases …");
  let data;
  try {
    data = await fetchJson("cases.json");
  } catch (problem) {
    return notices.message(`The list of cases cannot be read.\n${problem.message}`, true);
  }
  document.title = byId("title").textContent = data.title || "Case viewer";
  const viewer = new Viewer(data);
  window.viewer = viewer;
  await viewer.openFromAddress();
}

start();
