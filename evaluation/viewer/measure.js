// Rulers and spheres that a person draws: lengths, and the PET's own voxels inside a sphere.
/* global d3 */

import { byId, element } from "./notices.js";
import { ACROSS } from "./view.js";

const MOST_RADIUS_MM = 50;
const CLICKED_RADIUS_MM = 10;
const SHORTEST_MM = 1;
// Of a sphere of 1 ml.
const PEAK_RADIUS_MM = ((3 * 1000) / (4 * Math.PI)) ** (1 / 3);
const COLOUR = "#ffe14d";

/** @typedef {{kind: "ruler" | "sphere", plane: number, from: number[], to: number[], text: string}} Measurement */

const distance = (a, b) => Math.hypot(...a.map((mm, axis) => mm - b[axis]));

/** Call `take(index, value)` for each voxel whose centre lies at most `radius` mm from a position. */
function forVoxelsWithin({ grid, voxels, slope, intercept, affine }, centre, radius, take) {
  const { dims, spacing } = grid;
  // The axes are perpendicular, so that a voxel's index is a projection on each of them.
  const middle = spacing.map((mm, axis) => affine.reduce((sum, row, place) => sum + (row[axis] * (centre[place] - row[3])) / mm ** 2, 0));
  const first = middle.map((place, axis) => Math.max(0, Math.ceil(place - radius / spacing[axis] - 1e-6)));
  const last = middle.map((place, axis) => Math.min(dims[axis] - 1, Math.floor(place + radius / spacing[axis] + 1e-6)));
  const square = (place, axis) => ((place - middle[axis]) * spacing[axis]) ** 2;
  const most = radius ** 2 + 1e-6;
  for (let z = first[2]; z <= last[2]; z++) {
    for (let y = first[1]; y <= last[1]; y++) {
      const rest = most - square(z, 2) - square(y, 1);
      for (let x = first[0]; x <= last[0]; x++) {
        if (square(x, 0) <= rest) take([x, y, z], voxels[(z * dims[1] + y) * dims[0] + x] * slope + intercept);
      }
    }
  }
}

function meanWithin(volume, centre, radius) {
  const values = [];
  forVoxelsWithin(volume, centre, radius, (_, value) => values.push(value));
  return d3.mean(values);
}

/**
 * Highest and mean value of the voxels whose centres lie in a sphere, and the highest mean over a sphere of 1 ml around any
 * of them, which may reach beyond the sphere. Null without such a voxel.
 * @param {import("./files.js").Volume} volume @param {number[]} centre mm @param {number} radius mm
 */
export function sphereValues(volume, centre, radius) {
  const [values, peaks] = [[], []];
  forVoxelsWithin(volume, centre, radius, (voxel, value) => {
    const mm = volume.affine.map((row) => row[3] + d3.sum(voxel, (place, axis) => place * row[axis]));
    values.push(value);
    peaks.push(meanWithin(volume, mm, PEAK_RADIUS_MM));
  });
  return values.length ? { max: d3.max(values), mean: d3.mean(values), peak: d3.max(peaks) } : null;
}

export class Measurements {
  #viewer;
  /** @type {Measurement[]} */
  #items = [];
  #drawing = null;

  constructor(viewer) {
    this.#viewer = viewer;
  }

  /** Remove the last one, or all of them. */
  remove(count = this.#items.length) {
    this.#items.splice(this.#items.length - count, count);
    this.#list();
    this.#viewer.draw();
  }

  start(kind, plane, mm) {
    this.#drawing = { kind, plane, from: mm, to: mm, text: "" };
    this.#items.push(this.#drawing);
  }

  /** Draw on to a position; a sphere grows around the first one. */
  extend(mm) {
    const one = this.#drawing;
    if (!one) return;
    one.to = mm;
    one.text = one.kind === "ruler" ? `${distance(one.from, mm).toFixed(1)} mm` : `r ${radiusOf(one).toFixed(1)} mm`;
    this.#viewer.draw();
  }

  /** End a measurement. A click makes a sphere of 10 mm and no ruler. */
  async finish() {
    const one = this.#drawing;
    this.#drawing = null;
    if (!one) return;
    if (distance(one.from, one.to) < SHORTEST_MM) {
      if (one.kind === "ruler") return this.remove(1);
      one.to = one.from.map((mm, axis) => mm + (axis === 0 ? CLICKED_RADIUS_MM : 0));
    }
    if (one.kind === "sphere") one.text = sphereText(one, await this.#viewer.measuredPet(), this.#viewer.case?.pet.unit);
    this.#list();
    this.#viewer.draw();
  }

  #list() {
    byId("measurements-section").hidden = this.#items.length === 0;
    byId("measurements").replaceChildren(...this.#items.map((one) => this.#row(one)));
  }

  #row(one) {
    const text = `${one.kind === "ruler" ? "Ruler" : "Sphere"} ${one.text}`;
    const remove = () => {
      this.#items = this.#items.filter((other) => other !== one);
      this.remove(0);
    };
    const go = element("button", text, { onclick: () => this.#viewer.view.jump(one.from) });
    return element("li", [go, element("button", "✕", { ariaLabel: `Remove ${text}`, onclick: remove })], { className: "row" });
  }

  /** Draw those that the slice of a plane cuts. */
  draw(context, view, plane, ratio, write) {
    const axis = ACROSS[plane];
    for (const one of this.#items) {
      Object.assign(context, { strokeStyle: COLOUR, lineWidth: 1.5 * ratio });
      const away = Math.abs(one.from[axis] - view.position[axis]);
      const [[x, y], [toX, toY]] = [one.from, one.to].map((mm) => view.toPixel(plane, mm));
      const radius = one.kind === "sphere" ? Math.sqrt(Math.max(0, radiusOf(one) ** 2 - away ** 2)) * view.scale : 0;
      if (one.kind === "ruler" ? one.plane !== plane || away > view.grid.spacing[axis] / 2 : radius === 0) continue;
      context.beginPath();
      if (one.kind === "sphere") context.arc(x, y, radius, 0, 2 * Math.PI);
      else {
        context.moveTo(x, y);
        context.lineTo(toX, toY);
      }
      context.stroke();
      const [right, low] = one.kind === "sphere" ? [x + radius, y] : [Math.max(x, toX), x > toX ? y : toY];
      one.text.split(", ").slice(0, 3).forEach((line, place) => write(line, right + 6 * ratio, low + 15 * place * ratio));
    }
  }
}

const radiusOf = ({ from, to }) => Math.min(MOST_RADIUS_MM, distance(from, to));

function sphereText(sphere, pet, unit) {
  const radius = radiusOf(sphere);
  const size = `${((4 / 3) * Math.PI * (radius / 10) ** 3).toFixed(2)} ml, r ${radius.toFixed(1)} mm`;
  if (pet === null) return `${size}, no PET values`;
  const values = sphereValues(pet, sphere.from, radius);
  if (!values) return `${size}, no PET voxel inside`;
  const [name, digits] = unit === "SUV" ? ["SUV", 2] : [`${unit} `, 0];
  return [...Object.entries(values).map(([key, value]) => `${name}${key} ${value.toFixed(digits)}`), size].join(", ");
}
