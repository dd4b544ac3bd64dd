// The page: opens cases, holds what a person has set, and draws when something changes.

import { CaseList } from "./cases.js";
import { Contours } from "./contours.js";
import { fetchJson, fetchVolume, readMask } from "./files.js";
import { Images } from "./images.js";
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
  #plane = 0;
  case = null;

  constructor(images, data) {
    this.images = images;
    this.overlay = new Overlay(byId("overlay"), images);
    this.tools = new Tools(this);
    this.panel = new Panel({ toggle: (name, on) => this.toggle(name, on), jump: (lesion) => this.jump(lesion.centroid_ras_mm) });
    this.cases = new CaseList(data, (name) => this.open(name));
    for (const { name } of data.teams.slice(TEAMS_SHOWN_AT_FIRST)) this.#choices.set(name, false);
    this.pointer = new Pointer(byId("stage"), images, this.#mouseActions());
    this.#fit();
    new ResizeObserver(() => this.#fit()).observe(byId("stage"));
    window.addEventListener("hashchange", () => this.openFromAddress());
    listenToKeys(this);
  }

  // Opening a case.

  /** Open the case of the address (`#case=ID&pos=x,y,z`), or the first one. */
  async openFromAddress() {
    const address = new URLSearchParams(location.hash.slice(1));
    const name = address.get("case") ?? this.cases.first;
    const mm = (address.get("pos") ?? "").split(",").map(Number);
    const position = mm.length === 3 && mm.every(Number.isFinite) ? mm : null;
    if (name === null) return this.#say("No cases.");
    if (this.case?.case !== name) await this.open(name, position);
    else if (position) this.jump(position);
  }

  /** Load and show a case; a case that is opened meanwhile ends this one. */
  async open(name, position = null) {
    this.#opening?.abort();
    const opening = (this.#opening = new AbortController());
    const started = performance.now();
    this.cases.select(name);
    this.#caption(name, "");
    this.#message(`Opening ${name} …`);
    try {
      await this.#load(name, position, opening.signal);
      if (opening.signal.aborted) return;
      this.#message(null);
      this.#fit();
      await painted();
      if (!opening.signal.aborted) this.#say(`${this.#summary()} Opened in ${((performance.now() - started) / 1000).toFixed(1)} s.`);
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
    this.case = { ...content, folder };
    this.tools.adopt(content);
    this.overlay.reset();
    await this.images.show(ct, this.tools.ctRange, pet, this.tools.pet);
    this.#contours.clear();
    this.#visible = new Set(masks.map(({ name: mask }) => mask));
    masks.forEach((mask, place) => this.#addContours(mask, buffers[place]));
    this.panel.show(content, this.#visible);
    this.#caption(name, content.facts);
    this.images.position = this.images.toFraction(position ?? this.#startPosition() ?? this.images.middleMm);
  }

  #progress(name) {
    let bytes = 0;
    return (count) => {
      bytes += count;
      this.#message(`Opening ${name} … ${(bytes / 1e6).toFixed(1)} MB`);
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
    byId("readout").textContent = "";
    this.#message(`${name} cannot be shown.\n${problem.message}`, true);
    history.replaceState(null, "", `#case=${encodeURIComponent(name)}`);
  }

  // Contours.

  #addContours(mask, buffer) {
    const contours = new Contours(readMask(buffer, this.images.grid, mask.file));
    this.#contours.set(mask.name, { name: mask.name, colour: mask.colour, isReference: mask.is_reference, contours });
  }

  /** Switch the contour of a mask on or off; its file is loaded when it is first needed. */
  async toggle(name, on = !this.#visible.has(name)) {
    this.#choices.set(name, on);
    if (on) this.#visible.add(name);
    else this.#visible.delete(name);
    this.#hidden = false;
    this.panel.update();
    const mask = this.case?.masks.find((one) => one.name === name);
    if (on && mask && !this.#contours.has(name)) await this.#loadContours(mask);
    this.draw();
    this.#say(`Contour of ${name} ${on ? "on" : "off"}.`);
  }

  async #loadContours(mask) {
    const current = this.case;
    try {
      const buffer = await fetchVolume(current.folder + encodeURIComponent(mask.file), this.#opening.signal, () => {});
      if (this.case === current) this.#addContours(mask, buffer);
    } catch (problem) {
      if (this.case === current) this.#say(problem.message, true);
    }
  }

  hideContours() {
    this.#hidden = !this.#hidden;
    this.draw();
    this.#say(this.#hidden ? "Contours hidden." : "Contours shown.");
  }

  // Uncertainty.

  async showUncertainty(map, opacity) {
    const current = this.case;
    try {
      const buffer = map && (await fetchVolume(current.folder + encodeURIComponent(map.file), this.#opening.signal, () => {}));
      if (this.case !== current) return;
      await this.images.setUncertainty(buffer, map?.window, opacity);
      this.drawNow();
      this.#say(map ? `Uncertainty of ${map.team} shown: ${map.title}.` : "Uncertainty hidden.");
    } catch (problem) {
      if (this.case === current) this.#say(problem.message, true);
    }
  }

  // Moving.

  jump(mm) {
    if (!this.case) return;
    this.images.position = this.images.toFraction(mm);
    this.draw();
  }

  #mouseActions() {
    const at = (plane, x, y) => {
      const view = this.images.view(plane);
      const position = this.images.position;
      position[view.h] = (x - view.left) / view.scaleX;
      position[view.v] = (y - view.top) / view.scaleY;
      return position;
    };
    return {
      focus: (plane) => (this.#plane = plane),
      enlarge: (plane) => this.enlarge(plane),
      positionAt: (plane, x, y) => this.#change(() => (this.images.position = at(plane, x, y))),
      scroll: (plane, slices) => this.scroll(slices, plane),
      zoom: (factor, plane, x, y) => this.#change(() => this.images.zoomBy(factor, at(plane, x, y))),
      pan: (plane, dx, dy) => this.#change(() => this.images.panBy(plane, dx, dy)),
      window: (dx, dy) => this.tools.dragWindow(dx, dy),
      turn: (dx) => this.tools.turn(dx / 2),
      pick: (x, y) => {
        const position = this.overlay.hottestAt(x, y, this.tools.angle);
        if (position) this.#change(() => (this.images.position = position));
      },
    };
  }

  #change(change) {
    if (!this.case) return;
    change();
    this.draw();
  }

  /** Move through the slices of a plane (by default the one last used), towards the head, front or right. */
  scroll(slices, plane = this.#plane) {
    if (plane < 3) this.#step([2, 1, 0][plane], slices);
  }

  /** Move the crosshair on the screen of the plane last used. */
  moveCrosshair(right, up) {
    if (!this.case || !this.images.planes.includes(this.#plane)) return;
    const view = this.images.view(this.#plane);
    this.#step(view.h, right * Math.sign(view.scaleX));
    this.#step(view.v, -up * Math.sign(view.scaleY));
  }

  #step(axis, voxels) {
    this.#change(() => {
      const position = this.images.position;
      position[axis] += voxels / this.images.grid.dims[axis];
      this.images.position = position;
    });
  }

  /** Give one panel the whole stage, or end that. By default the panel last used. */
  enlarge(panel = this.#plane) {
    if (!this.case || panel < 0) return;
    this.images.enlarged = this.images.enlarged === null ? panel : null;
    this.#fit();
  }

  zoomBy(factor) {
    this.#change(() => this.images.zoomBy(factor));
  }

  resetZoom() {
    this.#change(() => this.images.resetZoom());
  }

  // Drawing.

  #fit() {
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
    const { ct, pet } = this.images.values;
    const parts = ["R", "A", "S"].map((axis, place) => `${axis} ${figure(mm[place], 1)}`);
    const unit = this.case.pet.unit;
    const uptake = pet === null ? "" : `   ${unit === "SUV" ? "SUV" : ""} ${figure(pet, 2)}${unit === "SUV" ? "" : ` ${unit}`}`;
    byId("readout").textContent = `${parts.join("  ")} mm   HU ${figure(ct, 0)}${uptake}`;
    const address = `#case=${encodeURIComponent(this.case.case)}&pos=${mm.map((value) => value.toFixed(1)).join(",")}`;
    if (location.hash !== address) history.replaceState(null, "", address);
  }

  // Words.

  #caption(name, facts) {
    const title = document.createElement("b");
    title.textContent = name;
    byId("case-title").replaceChildren(title, facts ? `  ${facts}` : "");
  }

  #message(text, failed = false) {
    const message = byId("message");
    message.hidden = text === null;
    message.textContent = text ?? "";
    message.classList.toggle("failed", failed);
    if (text !== null) this.#say(text.replace("\n", " "), failed);
  }

  #say(text, failed = false) {
    byId("status").textContent = text;
    byId("status").title = text;
    byId("status").classList.toggle("failed", failed);
  }

  say(text) {
    this.#say(text);
  }

  /** Canvas pixel of a position in a plane (0 axial, 1 coronal, 2 sagittal), for scripts and tests. */
  pixelOf(plane, mm) {
    const view = this.images.view(plane);
    const fraction = this.images.toFraction(mm);
    return [view.left + view.scaleX * fraction[view.h], view.top + view.scaleY * fraction[view.v]];
  }
}

function figure(value, digits) {
  return value.toFixed(digits).replace("-", "−");
}

// Two frames: the first one draws, the second begins when that is on the screen.
function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

async function start() {
  const status = (text) => {
    byId("message").hidden = false;
    byId("message").classList.add("failed");
    byId("message").textContent = byId("status").textContent = text;
  };
  let data;
  try {
    data = await fetchJson("cases.json");
  } catch (problem) {
    return status(`The list of cases cannot be read.\n${problem.message}`);
  }
  document.title = byId("title").textContent = data.title || "Case viewer";
  let images;
  try {
    images = await Images.attach(byId("planes"));
  } catch (problem) {
    return status(`This browser cannot draw the images: WebGL2 is missing or switched off.\n${problem.message}`);
  }
  window.viewer = new Viewer(images, data);
  await window.viewer.openFromAddress();
}

start();
