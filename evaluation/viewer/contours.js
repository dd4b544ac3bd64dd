// Outlines of masks as vector paths.

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
    if (!this.mask) return null;
    const key = `${plane}:${index}:${label}`;
    if (!this.#slices.has(key)) this.#slices.set(key, this.#trace(plane, index, label));
    return this.#slices.get(key);
  }

  #trace(plane, index, label) {
    const { low, size, labels } = this.mask;
    const axis = ACROSS[plane];
    const depth = index - low[axis];
    if (depth < 0 || depth >= size[axis]) return null;
    const [h, v] = IN_PLANE[plane];
    const step = [1, size[0], size[0] * size[1]];
    const inside = (x, y) =>
      x >= 0 && y >= 0 && x < size[h] && y < size[v] && labels[depth * step[axis] + x * step[h] + y * step[v]] === label;
    return outline(inside, size[h], size[v], low[h], low[v]);
  }
}

/**
 * The outline of `inside(x, y)` on a grid of width x height pixels, moved by (left, top), as a Path2D.
 * It joins the middles of the pixel edges between inside and outside: marching squares at one half.
 */
export function outline(inside, width, height, left = 0, top = 0) {
  const edges = boundaryEdges(inside, width, height);
  if (edges.size === 0) return null;
  const path = new Path2D();
  const stride = width + 1;
  for (const first of edges.keys()) {
    while (edges.has(first)) {
      let [corner, join] = [first, "moveTo"];
      do {
        const next = edges.get(corner).pop();
        if (edges.get(corner).length === 0) edges.delete(corner);
        path[join](left + ((corner % stride) + (next % stride)) / 2, top + (Math.floor(corner / stride) + Math.floor(next / stride)) / 2);
        [corner, join] = [next, "lineTo"];
      } while (corner !== first);
      path.closePath();
    }
  }
  return path;
}

// Directed edges with the inside on their right: from each corner to the corners that follow it, in closed loops.
function boundaryEdges(inside, width, height) {
  const stride = width + 1;
  const edges = new Map();
  const add = (from, to) => edges.set(from, [...(edges.get(from) ?? []), to]);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if (!inside(x, y)) continue;
      const corner = y * stride + x;
      if (!inside(x, y - 1)) add(corner, corner + 1);
      if (!inside(x + 1, y)) add(corner + 1, corner + 1 + stride);
      if (!inside(x, y + 1)) add(corner + 1 + stride, corner + stride);
      if (!inside(x - 1, y)) add(corner + stride, corner);
    }
  }
  return edges;
}
