// The panel with the projection of the PET: its picture, projected contours, and the voxel behind a pixel.

import { outline } from "./contours.js";
import { colourTable, petMap } from "./layers.js";
import { Rays, maskVolume, poolVolume } from "./rays.js";

export class Projection {
  #volume;
  #grid;
  #rays = null;
  #outlines = new Map();
  #picture = { key: "", canvas: null };

  /** @param {import("./files.js").Volume} pet */
  constructor(pet) {
    this.#volume = poolVolume(pet);
    this.#grid = pet.grid;
  }

  #raysAt(angle) {
    if (this.#rays?.degrees !== angle) {
      this.#rays = new Rays(this.#volume, angle);
      this.#rays.picture = this.#rays.maximum(-Infinity);
      this.#outlines.clear();
    }
    return this.#rays;
  }

  /** Where the picture lies: as large as the panel allows at any angle, in the middle. */
  place(panel, angle) {
    const rays = this.#raysAt(angle);
    const { dims, spacing, full } = rays.volume;
    const [widthMm, heightMm] = [Math.max(full[0] * spacing[0], full[1] * spacing[1]), dims[2] * spacing[2]];
    const scale = Math.min(panel.width / widthMm, panel.height / heightMm);
    const [width, height] = [rays.width * rays.pitch * scale, heightMm * scale];
    return { left: panel.left + (panel.width - width) / 2, top: panel.top + (panel.height - height) / 2, width, height, scale };
  }

  /** The projection as a picture in the colours of a PET map. */
  picture(angle, { range, map }) {
    const key = `${angle} ${range} ${map}`;
    if (this.#picture.key === key) return this.#picture.canvas;
    const rays = this.#raysAt(angle);
    const [width, height] = [rays.width, rays.volume.dims[2]];
    const pixels = new ImageData(width, height);
    const colours = colourTable({ ...petMap(map), alone: true });
    for (let z = 0; z < height; z++) {
      for (let u = 0; u < width; u++) {
        const share = (rays.picture[z * width + u] - range[0]) / (range[1] - range[0]);
        const colour = 4 * Math.round(255 * Math.min(1, Math.max(0, share)));
        pixels.data.set(colours.subarray(colour, colour + 4), 4 * ((height - 1 - z) * width + u));
      }
    }
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    this.#picture = { key, canvas };
    return canvas;
  }

  /** Leads from `outlineOf`'s units to canvas pixels. */
  matrix(panel, angle) {
    const { left, top, width, height, scale } = this.place(panel, angle);
    const { spacing } = this.#grid;
    return new DOMMatrix([Math.min(spacing[0], spacing[1]) * scale, 0, 0, -spacing[2] * scale, left + width / 2, top + height]);
  }

  /** Outline of a label of a named mask, in units of (ray, slice), from the middle of the picture and its lower edge. */
  outlineOf(name, mask, label, angle) {
    if (!mask) return null;
    this.#raysAt(angle);
    const key = `${name}:${label}`;
    if (!this.#outlines.has(key)) {
      const volume = maskVolume(mask, this.#grid);
      const rays = new Rays({ ...volume, values: volume.values.map((value) => Number(value === label)) }, angle);
      const picture = rays.maximum(0);
      const [width, height] = [rays.width, volume.dims[2]];
      const inside = (x, y) => x >= 0 && y >= 0 && x < width && y < height && picture[y * width + x] > 0;
      this.#outlines.set(key, outline(inside, width, height, -width / 2, volume.low[2]));
    }
    return this.#outlines.get(key);
  }

  /** Canvas pixel of a position in mm. */
  pixelOf(panel, angle, mm) {
    const rays = this.#raysAt(angle);
    const { left, top, width, height } = this.place(panel, angle);
    const { dims, spacing, origin } = this.#grid;
    const fraction = mm.map((value, axis) => ((value - origin[axis]) / spacing[axis] + 0.5) / dims[axis]);
    return [left + (rays.columnOf(fraction) / rays.width) * width, top + (1 - fraction[2]) * height];
  }

  /** Position in mm of the hottest voxel behind a canvas pixel; null beside the picture. */
  hottestAt(panel, angle, x, y) {
    const rays = this.#raysAt(angle);
    const { left, top, width, height } = this.place(panel, angle);
    const u = Math.floor(((x - left) / width) * rays.width);
    const z = Math.floor((1 - (y - top) / height) * rays.volume.dims[2]);
    const { dims, spacing, origin } = this.#grid;
    return rays.hottest(u, z)?.map((fraction, axis) => origin[axis] + (fraction * dims[axis] - 0.5) * spacing[axis]) ?? null;
  }
}
