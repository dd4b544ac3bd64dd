// Maximum intensity projection of the PET around the body's long axis: its picture, projected contours, and the voxel
// behind a pixel. It is exact. At 0 degrees the viewer stands in front of the patient, whose right is on the left.

import { outline } from "./contours.js";
import { colourTable, petMap } from "./layers.js";

// Voxels are pooled (by their maximum) until they are at least this large: a PET resolves 4 mm.
const SMALLEST_MM = 1.8;

export class Projection {
  /** @param {import("./files.js").Volume} pet */
  constructor(pet) {
    this.grid = pet.grid;
    this.factor = pet.grid.spacing.map((mm) => Math.max(1, Math.ceil(SMALLEST_MM / mm)));
    this.dims = pet.grid.dims.map((count, axis) => Math.ceil(count / this.factor[axis]));
    this.spacing = pet.grid.spacing.map((mm, axis) => mm * this.factor[axis]);
    this.pitch = Math.min(this.spacing[0], this.spacing[1]);
    this.values = pool(pet, this.factor, this.dims);
    // Distances in mm from the lower edges of the grid.
    this.low = pet.grid.origin.map((mm, axis) => mm - pet.grid.spacing[axis] / 2);
    this.middle = [0, 1].map((axis) => (this.dims[axis] * this.spacing[axis]) / 2);
    this.outlines = new Map();
    this.coloured = { key: "", canvas: null };
    // Of the angle that was last shown: its rays with the offsets of their voxels in a slice, and their largest values.
    this.degrees = NaN;
    this.sine = this.cosine = 0;
    /** @type {Int32Array[]} */
    this.rays = [];
    this.picture = new Float32Array();
  }

  // One ray for each column of the picture.
  #turn(degrees) {
    if (this.degrees === degrees) return;
    const [[sx, sy], radians] = [this.spacing, (degrees * Math.PI) / 180];
    Object.assign(this, { degrees, sine: Math.sin(radians), cosine: Math.cos(radians) });
    this.outlines.clear();
    const diagonal = Math.ceil(Math.hypot(this.dims[0] * sx, this.dims[1] * sy) / this.pitch);
    // Seen along an axis of the volume, rays and steps then go through the middles of voxels and not along their edges.
    const [across, along] = Math.round(degrees / 90) % 2 === 0 ? [0, 1] : [1, 0];
    const places = (count) => Array.from({ length: count }, (_, place) => (place + 0.5 - count / 2) * this.pitch);
    const steps = places(diagonal + ((diagonal + this.dims[along]) % 2));
    this.rays = places(diagonal + ((diagonal + this.dims[across]) % 2)).map((u) => this.#ray(u, steps));
    this.picture = this.#maxima();
  }

  #ray(u, steps) {
    const offsets = [];
    for (const t of steps) {
      const x = Math.floor((this.middle[0] - u * this.cosine + t * this.sine) / this.spacing[0]);
      const y = Math.floor((this.middle[1] + u * this.sine + t * this.cosine) / this.spacing[1]);
      if (x >= 0 && y >= 0 && x < this.dims[0] && y < this.dims[1]) offsets.push(y * this.dims[0] + x);
    }
    return Int32Array.from(offsets);
  }

  /** The largest value on each ray, rows from the feet up. */
  #maxima() {
    const { rays, values, dims } = this;
    const picture = new Float32Array(rays.length * dims[2]).fill(-Infinity);
    for (let z = 0; z < dims[2]; z++) {
      const slice = z * dims[0] * dims[1];
      rays.forEach((offsets, u) => {
        let largest = -Infinity;
        for (let i = 0; i < offsets.length; i++) if (values[slice + offsets[i]] > largest) largest = values[slice + offsets[i]];
        picture[z * rays.length + u] = largest;
      });
    }
    return picture;
  }

  /** Column of the picture, in mm from its middle, of a distance in mm from the axis of rotation. */
  #across(x, y) {
    return -x * this.cosine + y * this.sine;
  }

  /** Where the picture lies: as large as the panel allows at any angle, in the middle. */
  place(panel, degrees) {
    this.#turn(degrees);
    const heightMm = this.dims[2] * this.spacing[2];
    const scale = Math.min(panel.width / (2 * Math.max(...this.middle)), panel.height / heightMm);
    const [width, height] = [this.rays.length * this.pitch * scale, heightMm * scale];
    return { left: panel.left + (panel.width - width) / 2, top: panel.top + (panel.height - height) / 2, width, height, scale };
  }

  /** The projection as a picture in the colours of a PET map. */
  coloursOf(degrees, { range, map }) {
    this.#turn(degrees);
    const key = `${degrees} ${range} ${map}`;
    if (this.coloured.key === key) return this.coloured.canvas;
    const [width, height] = [this.rays.length, this.dims[2]];
    const pixels = new ImageData(width, height);
    const colours = colourTable({ ...petMap(map), alone: true });
    this.picture.forEach((value, place) => {
      const colour = 4 * Math.round(255 * Math.min(1, Math.max(0, (value - range[0]) / (range[1] - range[0]))));
      const row = height - 1 - Math.floor(place / width);
      pixels.data.set(colours.subarray(colour, colour + 4), 4 * (row * width + (place % width)));
    });
    const canvas = new OffscreenCanvas(width, height);
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    this.coloured = { key, canvas };
    return canvas;
  }

  /** Leads from `outlineOf`'s units to canvas pixels. */
  matrix(panel, degrees) {
    const { left, top, width, height, scale } = this.place(panel, degrees);
    const { spacing } = this.grid;
    return new DOMMatrix([Math.min(spacing[0], spacing[1]) * scale, 0, 0, -spacing[2] * scale, left + width / 2, top + height]);
  }

  /** Outline of a label of a named mask: columns from the middle of the picture, slices from its lower edge. */
  outlineOf(name, mask, label, degrees) {
    this.#turn(degrees);
    const key = `${name}:${label}`;
    if (!this.outlines.has(key)) this.outlines.set(key, mask && this.#silhouette(mask, label));
    return this.outlines.get(key);
  }

  // Each voxel covers the columns whose middles lie in its projection.
  #silhouette({ low, size, labels }, label) {
    const { spacing } = this.grid;
    const pitch = Math.min(spacing[0], spacing[1]);
    const half = (Math.abs(this.cosine) * spacing[0] + Math.abs(this.sine) * spacing[1]) / 2;
    const reach = Math.ceil(Math.hypot(...this.middle) / pitch) + 1;
    const across = Math.round(this.degrees / 90) % 2;
    const first = -reach + ((this.dims[across] * this.factor[across]) % 2) / 2;
    const pixels = Array(2 * reach * size[2]).fill(false);
    labels.forEach((value, voxel) => {
      if (value !== label) return;
      const [x, y] = [voxel % size[0], Math.floor(voxel / size[0]) % size[1]];
      const middle = this.#across((low[0] + x + 0.5) * spacing[0] - this.middle[0], (low[1] + y + 0.5) * spacing[1] - this.middle[1]);
      const [from, to] = [middle - half, middle + half].map((mm) => mm / pitch - first - 0.5);
      const row = 2 * reach * Math.floor(voxel / (size[0] * size[1]));
      for (let column = Math.ceil(from - 1e-6); column <= to + 1e-6; column++) pixels[row + column] = true;
    });
    return outline(pixels, 2 * reach, size[2], first, low[2]);
  }

  /** Canvas pixel of a position in mm. */
  pixelOf(panel, degrees, mm) {
    const { left, top, width, height, scale } = this.place(panel, degrees);
    const [x, y, z] = mm.map((value, axis) => value - this.low[axis]);
    return [left + width / 2 + this.#across(x - this.middle[0], y - this.middle[1]) * scale, top + height - z * scale];
  }

  /** Position in mm of the hottest voxel behind a canvas pixel; null beside the picture. */
  hottestAt(panel, degrees, x, y) {
    const { left, top, width, height } = this.place(panel, degrees);
    const offsets = this.rays[Math.floor(((x - left) / width) * this.rays.length)];
    const z = Math.floor((1 - (y - top) / height) * this.dims[2]);
    if (!offsets?.length || z < 0 || z >= this.dims[2]) return null;
    const slice = z * this.dims[0] * this.dims[1];
    const best = offsets.reduce((one, other) => (this.values[slice + other] > this.values[slice + one] ? other : one));
    const voxel = [best % this.dims[0], Math.floor(best / this.dims[0]), z];
    return voxel.map((place, axis) => this.low[axis] + (place + 0.5) * this.spacing[axis]);
  }
}

/** Letters at the left and right of the picture, for the nearest quarter turn. */
export function sideLetters(degrees) {
  return [["R", "L"], ["P", "A"], ["L", "R"], ["A", "P"]][Math.round(degrees / 90) % 4];
}

/** The largest value of each block of `factor` voxels, in the volume's unit. */
function pool({ grid, voxels, slope, intercept }, factor, dims) {
  const values = new Float32Array(dims[0] * dims[1] * dims[2]).fill(-Infinity);
  const column = Int32Array.from({ length: grid.dims[0] }, (_, x) => Math.floor(x / factor[0]));
  let voxel = 0;
  for (let z = 0; z < grid.dims[2]; z++) {
    for (let y = 0; y < grid.dims[1]; y++) {
      const row = (Math.floor(z / factor[2]) * dims[1] + Math.floor(y / factor[1])) * dims[0];
      for (let x = 0; x < grid.dims[0]; x++, voxel++) {
        const place = row + column[x];
        if (voxels[voxel] > values[place]) values[place] = voxels[voxel];
      }
    }
  }
  return values.map((value) => value * slope + intercept);
}
