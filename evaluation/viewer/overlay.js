// Everything drawn above NiiVue's planes: contours, crosshair, letters, scales, and the projection.

import { LABELS, outline } from "./contours.js";
import { Rays, maskVolume, poolVolume, sideLetters } from "./projection.js";

const INK = "#dfe6ee";
const CROSSHAIR = "rgba(120, 190, 255, 0.75)";
const NAMES = ["Axial", "Coronal", "Sagittal", "PET projection"];
const PROJECTION = 3;
const LETTERS = [
  ["R", "L", "A", "P"],
  ["R", "L", "S", "I"],
  ["A", "P", "S", "I"],
];
const SCALE_BARS_MM = [100, 50, 20, 10, 5, 2, 1];
const DASHES = { 1: [], 2: [5, 3.5] };

export class Overlay {
  #canvas;
  #context;
  #images;
  #pooled = null;
  #rays = null;
  #maskRays = new Map();
  #picture = null;
  #pictureKey = "";

  constructor(canvas, images) {
    this.#canvas = canvas;
    this.#context = canvas.getContext("2d", { willReadFrequently: false });
    this.#images = images;
  }

  /** Forget the projection of the last case. */
  reset() {
    this.#pooled = this.#rays = this.#picture = null;
    this.#maskRays.clear();
    this.#pictureKey = "";
  }

  clear() {
    this.#context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
  }

  /** `contours`: [{name, colour, contours}] of the masks switched on. */
  draw({ contours, pet, angle, ratio }) {
    this.ratio = ratio;
    this.clear();
    for (const plane of this.#images.planes) this.#drawPlane(plane, contours);
    if (this.#images.panels[PROJECTION]) this.#drawProjection(contours, pet, angle);
  }

  #drawPlane(plane, contours) {
    const context = this.#context;
    const view = this.#images.view(plane);
    const index = this.#images.voxel[view.across];
    const { dims } = this.#images.grid;
    context.save();
    clipTo(context, view.panel);
    const matrix = new DOMMatrix([view.scaleX / dims[view.h], 0, 0, view.scaleY / dims[view.v], view.left, view.top]);
    this.#strokeContours(contours, matrix, (one, label) => one.contours.slice(view.across, index, label));
    this.#drawCrosshair(view);
    const mm = this.#images.positionMm[view.across];
    this.#caption(view.panel, `${NAMES[plane]}  ${mm.toFixed(1).replace("-", "−")} mm`, LETTERS[plane]);
    this.#drawScaleBar(view.panel, this.#images.pixelsPerMm * this.#images.zoom);
    context.restore();
  }

  // Dark casings first, so that no contour hides another's line by its casing. The reference, drawn before the teams, has
  // the wider line, so that it shows beside a team's that coincides with it.
  #strokeContours(contours, matrix, pathOf) {
    const lines = [];
    for (const one of contours) {
      for (const label of LABELS) {
        const path = pathOf(one, label);
        if (!path) continue;
        const shown = new Path2D();
        shown.addPath(path, matrix);
        lines.push({ path: shown, colour: one.colour, width: one.isReference ? 2.8 : 1.8, dash: DASHES[label] });
      }
    }
    const context = this.#context;
    context.lineJoin = "round";
    for (const [more, colourOf] of [[1.6, () => "rgba(0, 0, 0, 0.5)"], [0, (line) => line.colour]]) {
      for (const line of lines) {
        context.lineWidth = (line.width + more) * this.ratio;
        context.setLineDash(line.dash.map((length) => length * this.ratio));
        context.strokeStyle = colourOf(line);
        context.stroke(line.path);
      }
    }
    context.setLineDash([]);
  }

  #drawCrosshair(view) {
    const [x, y] = this.pixelOf(view);
    const { left, top, width, height } = view.panel;
    const gap = 12 * this.ratio;
    this.#line([[left, y, x - gap, y], [x + gap, y, left + width, y], [x, top, x, y - gap], [x, y + gap, x, top + height]]);
  }

  #line(pieces) {
    const context = this.#context;
    context.lineWidth = this.ratio;
    context.strokeStyle = CROSSHAIR;
    context.beginPath();
    for (const [x0, y0, x1, y1] of pieces) {
      context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
      context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    }
    context.stroke();
  }

  /** Canvas pixel of the crosshair in a plane. */
  pixelOf(view) {
    const position = this.#images.position;
    return [view.left + view.scaleX * position[view.h], view.top + view.scaleY * position[view.v]];
  }

  #caption({ left, top, width, height }, title, [leftLetter, rightLetter, topLetter, bottomLetter]) {
    const pad = 8 * this.ratio;
    this.#text(title, left + pad, top + pad, "left", "top", 12);
    this.#text(leftLetter, left + pad, top + height / 2, "left", "middle", 14);
    this.#text(rightLetter, left + width - pad, top + height / 2, "right", "middle", 14);
    this.#text(topLetter, left + width / 2, top + pad, "center", "top", 14);
    this.#text(bottomLetter, left + width / 2, top + height - pad, "center", "bottom", 14);
  }

  #text(text, x, y, align, baseline, size) {
    const context = this.#context;
    context.font = `${size >= 14 ? 600 : 500} ${size * this.ratio}px system-ui, sans-serif`;
    context.textAlign = align;
    context.textBaseline = baseline;
    context.lineWidth = 3 * this.ratio;
    context.strokeStyle = "rgba(0, 0, 0, 0.7)";
    context.strokeText(text, x, y);
    context.fillStyle = INK;
    context.fillText(text, x, y);
  }

  #drawScaleBar({ left, top, width, height }, pixelsPerMm) {
    const mm = SCALE_BARS_MM.find((length) => length * pixelsPerMm < 0.3 * width) ?? 1;
    const length = mm * pixelsPerMm;
    const pad = 10 * this.ratio;
    const [x, y] = [left + pad, top + height - pad];
    const context = this.#context;
    for (const [thickness, colour] of [[4, "rgba(0, 0, 0, 0.7)"], [2, INK]]) {
      context.lineWidth = thickness * this.ratio;
      context.strokeStyle = colour;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + length, y);
      context.stroke();
    }
    this.#text(mm >= 10 ? `${mm / 10} cm` : `${mm} mm`, x, y - 5 * this.ratio, "left", "bottom", 11);
  }

  // The projection.

  /** Rays of the PET at `angle`; computed once per angle. */
  #raysAt(angle) {
    if (!this.#pooled) {
      const { voxels, scale } = this.#images.petVoxels;
      this.#pooled = poolVolume(voxels, scale, this.#images.grid);
    }
    if (this.#rays?.degrees !== angle) {
      this.#rays = new Rays(this.#pooled, angle);
      this.#rays.picture = this.#rays.maximum(-Infinity);
      this.#maskRays.clear();
    }
    return this.#rays;
  }

  #drawProjection(contours, pet, angle) {
    const context = this.#context;
    const panel = this.#images.panels[PROJECTION];
    context.save();
    clipTo(context, panel);
    context.fillStyle = "#000";
    context.fillRect(panel.left, panel.top, panel.width, panel.height);
    if (!this.#images.pet) {
      this.#text("No PET", panel.left + panel.width / 2, panel.top + panel.height / 2, "center", "middle", 14);
      context.restore();
      return;
    }
    const rays = this.#raysAt(angle);
    const place = this.#projectionPlace(rays);
    context.imageSmoothingQuality = "high";
    context.drawImage(this.#colouredPicture(rays, pet), place.left, place.top, place.width, place.height);
    this.#projectContours(contours, angle, place);
    this.#markPosition(angle);
    const letters = sideLetters(angle);
    this.#caption(panel, `${NAMES[PROJECTION]}  ${angle}°`, [letters[0], letters[1], "S", "I"]);
    context.restore();
  }

  /** Where the picture lies: as large as the panel allows, in the middle. */
  #projectionPlace(rays) {
    const panel = this.#images.panels[PROJECTION];
    const { dims, spacing } = rays.volume;
    const [widthMm, heightMm] = [this.#bodyWidthMm(rays), dims[2] * spacing[2]];
    const scale = Math.min(panel.width / widthMm, panel.height / heightMm);
    const width = rays.width * rays.pitch * scale;
    const height = heightMm * scale;
    return { left: panel.left + (panel.width - width) / 2, top: panel.top + (panel.height - height) / 2, width, height, scale };
  }

  #bodyWidthMm({ volume }) {
    return Math.max(volume.full[0] * volume.spacing[0], volume.full[1] * volume.spacing[1]);
  }

  #colouredPicture(rays, { range, map }) {
    const key = `${rays.degrees} ${range} ${map}`;
    if (this.#pictureKey === key) return this.#picture;
    const [width, height] = [rays.width, rays.volume.dims[2]];
    const picture = new OffscreenCanvas(width, height);
    const pixels = new ImageData(width, height);
    const colours = this.#images.colours(map);
    for (let z = 0; z < height; z++) {
      for (let u = 0; u < width; u++) {
        const share = (rays.picture[z * width + u] - range[0]) / (range[1] - range[0]);
        const colour = 4 * Math.round(255 * Math.min(1, Math.max(0, share)));
        const place = 4 * ((height - 1 - z) * width + u);
        pixels.data.set([colours[colour], colours[colour + 1], colours[colour + 2], 255], place);
      }
    }
    picture.getContext("2d").putImageData(pixels, 0, 0);
    this.#picture = picture;
    this.#pictureKey = key;
    return picture;
  }

  #projectContours(contours, angle, place) {
    const { spacing, dims } = this.#images.grid;
    this.#strokeContours(
      contours,
      new DOMMatrix([1, 0, 0, -1, place.left + place.width / 2, place.top + place.height])
        .scale(place.scale, place.scale)
        .multiply(new DOMMatrix([Math.min(spacing[0], spacing[1]), 0, 0, spacing[2], 0, 0])),
      (one, label) => this.#projectedOutline(one, label, angle, dims),
    );
  }

  // In units of (ray pitch, slice), from the middle of the picture and from its lower edge.
  #projectedOutline(one, label, angle) {
    if (!one.contours.mask) return null;
    const key = `${one.name}:${label}`;
    if (!this.#maskRays.has(key)) {
      const volume = maskVolume(one.contours.mask, this.#images.grid);
      const rays = new Rays({ ...volume, values: volume.values.map((value) => Number(value === label)) }, angle);
      const picture = rays.maximum(0);
      const [width, height] = [rays.width, volume.dims[2]];
      const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && picture[y * width + x] > 0;
      this.#maskRays.set(key, outline(inside, width, height, -width / 2, volume.low[2]));
    }
    return this.#maskRays.get(key);
  }

  /** Canvas pixel of the crosshair in the projection. */
  projected(angle) {
    const rays = this.#raysAt(angle);
    const place = this.#projectionPlace(rays);
    const position = this.#images.position;
    return [place.left + (rays.columnOf(position) / rays.width) * place.width, place.top + (1 - position[2]) * place.height];
  }

  #markPosition(angle) {
    const [x, y] = this.projected(angle);
    const panel = this.#images.panels[PROJECTION];
    const gap = 10 * this.ratio;
    this.#line([[panel.left, y, x - gap, y], [x + gap, y, panel.left + panel.width, y], [x, y - 2.2 * gap, x, y - gap], [x, y + gap, x, y + 2.2 * gap]]);
  }

  /** Position of the hottest voxel under a canvas pixel of the projection; null beside the picture. */
  hottestAt(x, y, angle) {
    if (!this.#images.pet) return null;
    const rays = this.#raysAt(angle);
    const place = this.#projectionPlace(rays);
    const u = Math.floor(((x - place.left) / place.width) * rays.width);
    const z = Math.floor((1 - (y - place.top) / place.height) * rays.volume.dims[2]);
    return rays.hottest(u, z);
  }
}

function clipTo(context, { left, top, width, height }) {
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
}
