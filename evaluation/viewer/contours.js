// Outlines of masks as vector paths.
/* global d3 */

import { ACROSS, IN_PLANE } from "./view.js";

export const LABELS = [1, 2];

/** The contours of one mask, traced when a slice is first shown. Coordinates are voxels, 0 at the first one's edge. */
export class Contours {
  #slices = new Map();

  /** @param {import("./files.js").MaskBox | null} mask null for an empty one */
  constructor(mask) {
    this.mask = mask;
  }

  /** Path of `label` in the slice `index` of a plane; null where the label does not occur. */
  slice(plane, index, label) {
    const key = `${plane}:${index}:${label}`;
    if (!this.#slices.has(key)) this.#slices.set(key, this.mask && this.#trace(plane, index, label));
    return this.#slices.get(key);
  }

  #trace(plane, index, label) {
    const { low, size, labels } = this.mask;
    const axis = ACROSS[plane];
    const depth = index - low[axis];
    if (depth < 0 || depth >= size[axis]) return null;
    const [h, v] = IN_PLANE[plane];
    const step = [1, size[0], size[0] * size[1]];
    const isInside = (_, pixel) => labels[depth * step[axis] + (pixel % size[h]) * step[h] + Math.floor(pixel / size[h]) * step[v]] === label;
    return outline(Array.from({ length: size[h] * size[v] }, isInside), size[h], size[v], low[h], low[v]);
  }
}

/**
 * The outline of the true pixels of a picture (rows of `width` pixels), moved by (left, top), as a Path2D.
 * It joins the middles of the pixel edges between inside and outside: marching squares at one half.
 */
export function outline(pixels, width, height, left, top) {
  const rings = d3.contours().size([width, height]).smooth(false).contour(pixels.map(Number), 0.5).coordinates.flat();
  const path = new Path2D();
  for (const ring of rings) {
    ring.forEach(([x, y], place) => path[place ? "lineTo" : "moveTo"](left + x, top + y));
    path.closePath();
  }
  return rings.length ? path : null;
}
