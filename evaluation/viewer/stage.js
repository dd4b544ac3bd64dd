// Draws the panels on the canvas: slices with contours, crosshair, letters and scale, and the projection of the PET.

import { LABELS } from "./contours.js";
import { ctLayer, fusedLayer, petLayer, sliceImage, uncertaintyLayer } from "./layers.js";
import { sideLetters } from "./projection.js";
import { ACROSS, PROJECTION } from "./view.js";

const INK = "#dfe6ee";
const CASING = "rgba(0, 0, 0, 0.7)";
const CROSSHAIR = "rgba(120, 190, 255, 0.75)";
const TITLES = { ct: "CT", pet: "PET", fused: "Fused" };
const NAMES = ["Axial", "Coronal", "Sagittal", "PET projection"];
const LETTERS = [
  ["R", "L", "A", "P"],
  ["R", "L", "S", "I"],
  ["A", "P", "S", "I"],
];
const SCALE_BARS_MM = [100, 50, 20, 10, 5, 2, 1];
const DASHES = { 1: [], 2: [5, 3.5] };

/**
 * @typedef {{name: string, colour: string, isReference: boolean, contours: import("./contours.js").Contours}} Outline
 * @typedef {{ct: number[], pet: {range: number[], map: string, opacity: number}, uncertaintyOpacity: number, angle: number,
 *   shown: string, crosshair: boolean}} Settings
 * @typedef {import("./files.js").Volume} Volume
 * @typedef {{ct: Volume, pet: Volume | null, projection: import("./projection.js").Projection | null,
 *   uncertainty: {volume: Volume, range: number[]} | null, measured: Volume | null}} Scene
 */

export class Stage {
  #canvas;
  #context;
  #view;
  #ratio = 1;

  /** @param {HTMLCanvasElement} canvas @param {import("./view.js").View} view */
  constructor(canvas, view) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d");
    this.#view = view;
  }

  /** Give the canvas a size in its own pixels, of which `ratio` make one of the page. */
  resize(width, height, ratio) {
    this.#ratio = ratio;
    Object.assign(this.#canvas, { width, height });
  }

  clear() {
    this.#context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
  }

  /**
   * @param {Scene} scene @param {Settings} settings @param {Outline[]} outlines those that are switched on
   * @param {import("./measure.js").Measurements} measurements
   */
  draw(scene, settings, outlines, measurements) {
    this.clear();
    const { planes, panels, copies } = this.#view;
    for (const plane of planes) {
      copies.forEach((copy, place) => {
        const shown = copies.length > 1 ? ["ct", "pet", "fused"][place] : settings.shown;
        const layers = layersOf(shown, scene, settings);
        const title = copies.length > 1 ? `${TITLES[shown]}, ${NAMES[plane]}` : NAMES[plane];
        this.#inPanel(plane, copy, () => this.#drawPlane(plane, title, layers, outlines, measurements, settings.crosshair));
      });
    }
    if (panels[PROJECTION]) this.#inPanel(PROJECTION, [0, 0], (panel) => this.#drawProjection(panel, scene.projection, settings, outlines));
  }

  #inPanel(panel, copy, action) {
    const { left, top, width, height } = this.#view.panels[panel];
    this.#context.save();
    this.#context.translate(copy[0], copy[1]);
    this.#context.beginPath();
    this.#context.rect(left, top, width, height);
    this.#context.clip();
    action(this.#view.panels[panel]);
    this.#context.restore();
  }

  #drawPlane(plane, title, layers, outlines, measurements, withCrosshair) {
    const view = this.#view;
    const panel = view.panels[plane];
    const across = ACROSS[plane];
    const index = view.voxelAt()[across];
    const image = sliceImage(layers, plane, index);
    const matrix = view.voxelMatrix(plane);
    const [width, height] = [-matrix.a * image.width, -matrix.d * image.height];
    const picture = new OffscreenCanvas(image.width, image.height);
    picture.getContext("2d").putImageData(image, 0, 0);
    this.#context.drawImage(picture, matrix.e - width, matrix.f - height, width, height);
    this.#strokeContours(outlines, matrix, ({ contours }, label) => contours.slice(plane, index, label));
    if (withCrosshair) this.#drawCrosshair(panel, 12 * this.#ratio, panel.height, ...view.toPixel(plane, view.position));
    measurements.draw(this.#context, view, plane, this.#ratio, (text, x, y) => this.#text(text, x, y, "left", "middle", 12));
    this.#caption(panel, `${title}  ${view.position[across].toFixed(1).replace("-", "−")} mm`, LETTERS[plane]);
    this.#drawScaleBar(panel);
  }

  #drawProjection(panel, projection, { pet, angle, crosshair }, outlines) {
    if (!projection) return this.#text("No PET", panel.left + panel.width / 2, panel.top + panel.height / 2, "center", "middle", 14);
    const { left, top, width, height } = projection.place(panel, angle);
    this.#context.imageSmoothingQuality = "high";
    this.#context.drawImage(projection.coloursOf(angle, pet), left, top, width, height);
    const outlineOf = ({ name, contours }, label) => projection.outlineOf(name, contours.mask, label, angle);
    this.#strokeContours(outlines, projection.matrix(panel, angle), outlineOf);
    if (crosshair) this.#drawCrosshair(panel, 10 * this.#ratio, 12 * this.#ratio, ...projection.pixelOf(panel, angle, this.#view.position));
    this.#caption(panel, `${NAMES[PROJECTION]}  ${angle}°`, [...sideLetters(angle), "S", "I"]);
  }

  // Dark casings first, so that no contour hides another's line by its casing. The reference is drawn last, and thinner, so
  // that a team's line that coincides with it shows on both sides.
  #strokeContours(outlines, matrix, pathOf) {
    const lines = [];
    for (const one of [...outlines].sort((a, b) => Number(a.isReference) - Number(b.isReference))) {
      for (const label of LABELS) {
        const path = pathOf(one, label);
        if (!path) continue;
        const shown = new Path2D();
        shown.addPath(path, matrix);
        lines.push({ path: shown, colour: one.colour, width: one.isReference ? 1.4 : 3.2, dash: DASHES[label] });
      }
    }
    const context = this.#context;
    context.lineJoin = "round";
    for (const casing of [1.6, 0]) {
      for (const line of lines) {
        context.lineWidth = (line.width + casing) * this.#ratio;
        context.setLineDash(line.dash.map((length) => length * this.#ratio));
        context.strokeStyle = casing ? "rgba(0, 0, 0, 0.5)" : line.colour;
        context.stroke(line.path);
      }
    }
    context.setLineDash([]);
  }

  // The vertical lines have at most a `length`; the panel cuts all of them.
  #drawCrosshair({ left, width }, gap, length, x, y) {
    const pieces = [[left, y, x - gap, y], [x + gap, y, left + width, y], [x, y - gap - length, x, y - gap], [x, y + gap, x, y + gap + length]];
    const context = this.#context;
    context.lineWidth = this.#ratio;
    context.strokeStyle = CROSSHAIR;
    context.beginPath();
    for (const [x0, y0, x1, y1] of pieces) {
      context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
      context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    }
    context.stroke();
  }

  #caption({ left, top, width, height }, title, letters) {
    const pad = 8 * this.#ratio;
    // A narrow panel has no room for the position beside the letter at its top.
    this.#text(width < 260 * this.#ratio ? title.split(/,? /)[0] : title, left + pad, top + pad, "left", "top", 12);
    this.#text(letters[0], left + pad, top + height / 2, "left", "middle", 14);
    this.#text(letters[1], left + width - pad, top + height / 2, "right", "middle", 14);
    this.#text(letters[2], left + width / 2, top + pad, "center", "top", 14);
    this.#text(letters[3], left + width / 2, top + height - pad, "center", "bottom", 14);
  }

  #text(text, x, y, align, baseline, size) {
    const font = `${size >= 14 ? 600 : 500} ${size * this.#ratio}px system-ui, sans-serif`;
    const style = { font, textAlign: align, textBaseline: baseline, lineWidth: 3 * this.#ratio, strokeStyle: CASING, fillStyle: INK };
    Object.assign(this.#context, style).strokeText(text, x, y);
    this.#context.fillText(text, x, y);
  }

  #drawScaleBar({ left, top, width, height }) {
    const { scale } = this.#view;
    const mm = SCALE_BARS_MM.find((length) => length * scale < 0.3 * width) ?? 1;
    const pad = 10 * this.#ratio;
    const [x, y] = [left + pad, top + height - pad];
    for (const thickness of [4, 2]) {
      this.#context.fillStyle = thickness === 4 ? CASING : INK;
      this.#context.fillRect(x, y - (thickness / 2) * this.#ratio, mm * scale, thickness * this.#ratio);
    }
    this.#text(mm >= 10 ? `${mm / 10} cm` : `${mm} mm`, x, y - 5 * this.#ratio, "left", "bottom", 11);
  }
}

/** What a plane shows: "ct", "pet" or "fused", with the map of uncertainty over it. */
function layersOf(shown, { ct, pet, uncertainty }, settings) {
  const layers = pet && shown === "pet" ? [petLayer(pet, settings.pet)] : [ctLayer(ct, settings.ct)];
  if (pet && shown === "fused") layers.push(fusedLayer(pet, settings.pet));
  if (uncertainty) layers.push(uncertaintyLayer(uncertainty.volume, uncertainty.range, settings.uncertaintyOpacity));
  return layers;
}
