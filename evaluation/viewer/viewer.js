// The page: opens cases, holds what a person has set, and draws when something changes.

import { CaseList } from "./cases.js";
import { Contours } from "./contours.js";
import { fetchJson, fetchVolume, readMask } from "./files.js";
import { readAddress, writeAddress } from "./address.js";
import { Images } from "./images.js";
import { Moves } from "./moves.js";
import * as notices from "./notices.js";
import { Overlay } from "./overlay.js";
import { Panel, REFERENCE, isOf } from "./panel.js";
import { Pointer } from "./pointer.js";
import { Tools } from "./tools.js";
import { listenToKeys } from "./keys.js";

// As many teams have their contours on at first; more hide the image.
const TEAMS_SHOWN_AT_FIRST = 3;

const byId = (id) => document.getElementById(id);

class Viewer {
  #opening = null;
  #contours = new Map();
  // Masks whose contours are on in this case, and what a person has chosen by name in any case.
  #visible = new Set();
  #choices = new Map();
  #hidden = false;
  #scheduled = false;
  case = null;

  constructor(images, data) {
    this.images = images;
    this.overlay = new Overlay(byId("overlay"), images);
    this.tools = new Tools(this);
    this.moves = new Moves(this);
    this.panel = new Panel({ switch: (names, on) => this.switch(names, on), jump: (lesion) => this.moves.jump(lesion.centroid_ras_mm) });
    this.cases = new CaseList(data, (name) => this.open(name));
    for (const { name } of data.teams.slice(TEAMS_SHOWN_AT_FIRST)) this.#choices.set(name, false);
    this.pointer = new Pointer(byId("stage"), images, this.moves);
    this.fit();
    new ResizeObserver(() => this.fit()).observe(byId("stage"));
    window.addEventListener("hashchange", () => this.openFromAddress());
    listenToKeys(this);
  }

  // Opening a case.

  /** Open the case of the address (`#case=ID&pos=x,y,z`), or the first one. */
  async openFromAddress() {
    const { name = this.cases.first, position } = readAddress();
    if (name === null) return notices.message("No cases.");
    if (this.case?.case !== name) await this.open(name, position);
    else if (position) this.moves.jump(position);
  }

  /** Load and show a case; a case that is opened meanwhile ends this one. */
  async open(name, position = null) {
    this.#opening?.abort();
    const opening = (this.#opening = new AbortController());
    const started = performance.now();
    this.cases.select(name);
    notices.caption(name, "");
    notices.message(`Opening ${name} …`);
    try {
      await this.#load(name, position, opening.signal);
      if (opening.signal.aborted) return;
      notices.message(null);
      this.fit();
      if (this.tools.uncertainty) await this.showUncertainty();
      this.images.finish();
      await painted();
      if (!opening.signal.aborted) notices.say(`${this.#summary()} Opened in ${((performance.now() - started) / 1000).toFixed(1)} s.`);
    } catch (problem) {
      if (!opening.signal.aborted) this.#fail(name, problem);
    }
  }

  async #load(name, position, signal) {
    const folder = `case/${encodeURIComponent(name)}/`;
    const content = await fetchJson(`${folder}case.json`, signal);
    const masks = content.masks.filter(({ name: mask }) => this.#choices.get(mask) ?? true);
    const progress = this.#progress(name);
    const load = (file) => fetchVolume(folder + encodeURIComponent(file), signal, progress);
    const [ct, pet, ...buffers] = await Promise.all([
      load(content.ct.file),
      content.pet.file ? load(content.pet.file) : null,
      ...masks.map(({ file }) => load(file)),
    ]);
    if (signal.aborted) return;
    this.tools.adopt(content);
    await this.images.show(ct, this.tools.ctRange, pet, this.tools.pet);
    this.case = { ...content, folder };
    this.overlay.reset();
    this.#contours.clear();
    this.#visible = new Set(masks.map(({ name: mask }) => mask));
    masks.forEach((mask, place) => this.#addContours(mask, buffers[place]));
    this.panel.show(content, this.#visible);
    notices.caption(name, content.facts);
    this.images.position = this.images.toFraction(position ?? this.#startPosition() ?? this.images.middleMm);
  }

  #progress(name) {
    let bytes = 0;
    return (count) => {
      bytes += count;
      notices.message(`Opening ${name} … ${(bytes / 1e6).toFixed(1)} MB`);
    };
  }

  // The largest lesion of the reference is what one wants to see first.
  #startPosition() {
    const reference = this.case.lesions.filter((lesion) => isOf(lesion, REFERENCE));
    const lesions = reference.length ? reference : this.case.lesions;
    const largest = [...lesions].sort((a, b) => b.volume_ml - a.volume_ml)[0];
    return largest?.centroid_ras_mm;
  }

  #summary() {
    const { masks, lesions } = this.case;
    const reference = lesions.filter((lesion) => isOf(lesion, REFERENCE)).length;
    return masks.length ? `${reference} lesion${reference === 1 ? "" : "s"}.` : "No masks.";
  }

  #fail(name, problem) {
    this.case = null;
    this.#contours.clear();
    this.images.clear();
    this.overlay.reset();
    this.overlay.clear();
    this.panel.clear();
    notices.noPosition();
    notices.message(`${name} cannot be shown.\n${problem.message}`, true);
    writeAddress(name);
  }

  // Contours.

  #addContours(mask, buffer) {
    const contours = new Contours(readMask(buffer, this.images.grid, mask.file));
    this.#contours.set(mask.name, { name: mask.name, colour: mask.colour, isReference: mask.is_reference, contours });
  }

  /** Switch the contour of a mask to the other state. */
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
    const current = this.case;
    try {
      const buffer = await fetchVolume(current.folder + encodeURIComponent(mask.file), this.#opening.signal, () => {});
      if (this.case === current) this.#addContours(mask, buffer);
    } catch (problem) {
      if (this.case === current) notices.say(problem.message, true);
    }
  }

  hideContours() {
    this.#hidden = !this.#hidden;
    this.draw();
    notices.say(this.#hidden ? "Contours hidden." : "Contours shown.");
  }

  // Uncertainty.

  /** Show the map that is chosen in the tools, or none. */
  async showUncertainty() {
    const current = this.case;
    const { uncertainty: map, uncertaintyOpacity } = this.tools;
    try {
      const buffer = map && (await fetchVolume(current.folder + encodeURIComponent(map.file), this.#opening.signal, () => {}));
      if (this.case !== current) return;
      await this.images.setUncertainty(buffer, map?.window, uncertaintyOpacity);
      this.drawNow();
      notices.say(map ? `Uncertainty of ${map.team} shown: ${map.title}.` : "Uncertainty hidden.");
    } catch (problem) {
      if (this.case === current) notices.say(problem.message, true);
    }
  }

  // Drawing.

  /** Give the canvases the size of the stage, lay the panels out and draw. */
  fit() {
    const stage = byId("stage");
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(stage.clientWidth * ratio), Math.round(stage.clientHeight * ratio)];
    for (const canvas of [byId("planes"), byId("overlay")]) {
      if (canvas.width !== width) canvas.width = width;
      if (canvas.height !== height) canvas.height = height;
    }
    if (!this.images.ct) return;
    this.images.layOut();
    this.#placeAngle(ratio);
    this.drawNow();
  }

  // The slider that turns the projection lies in its panel.
  #placeAngle(ratio) {
    const slider = byId("angle");
    const panel = this.images.panels[3];
    slider.hidden = !this.images.pet || !panel;
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
    if (!this.images.ct) return;
    this.images.draw();
    const masks = this.#hidden ? [] : (this.case?.masks ?? []).filter(({ name }) => this.#visible.has(name));
    const contours = masks.map(({ name }) => this.#contours.get(name)).filter(Boolean);
    this.overlay.draw({ contours, pet: this.tools.pet, angle: this.tools.angle, ratio: window.devicePixelRatio || 1 });
    this.#showPosition();
  }

  #showPosition() {
    if (!this.case) return;
    const mm = this.images.positionMm;
    notices.position(mm, this.images.values, this.case.pet.unit);
    writeAddress(this.case.case, mm);
  }

  /** Canvas pixel of a position in a plane (0 axial, 1 coronal, 2 sagittal), for scripts and tests. */
  pixelOf(plane, mm) {
    const view = this.images.view(plane);
    const fraction = this.images.toFraction(mm);
    return [view.left + view.scaleX * fraction[view.h], view.top + view.scaleY * fraction[view.v]];
  }
}

// Two frames: the first one draws, the second begins when that is on the screen.
function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

async function start() {
  let data;
  try {
    data = await fetchJson("cases.json");
  } catch (problem) {
    return notices.message(`The list of cases cannot be read.\n${problem.message}`, true);
  }
  document.title = byId("title").textContent = data.title || "Case viewer";
  let images;
  try {
    images = await Images.attach(byId("planes"));
  } catch (problem) {
    return notices.message(`This browser cannot draw the images: WebGL2 is missing or switched off.\n${problem.message}`, true);
  }
  window.viewer = new Viewer(images, data);
  await window.viewer.openFromAddress();
}

start();
