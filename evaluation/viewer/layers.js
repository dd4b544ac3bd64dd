// Volumes as coloured layers: CT windows, colour maps, and a slice painted from several layers.
/* global d3 */

import { ACROSS, IN_PLANE } from "./view.js";

export const CT_WINDOWS = [
  { name: "Soft tissue", range: [-160, 240] },
  { name: "Brain", range: [0, 80] },
  { name: "Bone", range: [-500, 1500] },
  { name: "Lung", range: [-1350, 150] },
];

// Choosing a map that is usual for a PET by itself (`alone`) hides the CT.
export const PET_MAPS = [
  { key: "hot", name: "Hot", colours: rgb({ 0: "#000", 40: "#960000", 115: "#ff5a00", 190: "#ffd23c", 255: "#fff" }) },
  { key: "grey", name: "PET grey", alone: true, colours: rgb({ 0: "#fff", 255: "#000" }) },
  { key: "rainbow", name: "Rainbow", colours: rgb({ 0: "#00003c", 40: "#1e3cdc", 90: "#00bedc", 140: "#3cd23c", 195: "#fadc1e", 255: "#ff1e14" }) },
  { key: "inferno", name: "Inferno", colours: (place) => d3.interpolateInferno(place / 255) },
];
const GREY = { alone: true, colours: rgb({ 0: "#000", 255: "#fff" }) };
const VIRIDIS = { colours: (place) => d3.interpolateViridis(place / 255) };
// Shares of the range between which a fused layer appears: of SUV 0 to 10, below 2 is background and shows the CT alone.
const [BACKGROUND, FULL] = [0.2, 0.4];

/** @typedef {import("./files.js").Volume} Volume */
/** @typedef {{volume: Volume, range: number[], table: Uint8ClampedArray}} Layer */

/** A colour for each place from 0 to 255, between given ones. */
function rgb(colours) {
  return d3.scaleLinear(Object.keys(colours), Object.values(colours));
}

/** Red, green, blue and alpha (0 to 255) for 256 places of a range. */
export function colourTable({ colours, alone = false }, opacity = 1) {
  const table = new Uint8ClampedArray(4 * 256);
  for (let place = 0; place < 256; place++) {
    const { r, g, b } = d3.rgb(colours(place));
    const fading = alone ? 1 : Math.min(1, Math.max(0, (place / 255 - BACKGROUND) / (FULL - BACKGROUND)));
    table.set([r, g, b, 255 * opacity * fading], 4 * place);
  }
  return table;
}

export const ctLayer = (volume, range) => ({ volume, range, table: colourTable(GREY) });
export const fusedLayer = (volume, { range, map, opacity }) => ({ volume, range, table: colourTable({ ...petMap(map), alone: false }, opacity) });
export const petLayer = (volume, { range, map }) => ({ volume, range, table: colourTable({ ...petMap(map), alone: true }) });
export const uncertaintyLayer = (volume, range, opacity) => ({ volume, range, table: colourTable(VIRIDIS, opacity) });

export const petMap = (key) => PET_MAPS.find((map) => map.key === key);

/** The value of a volume at a voxel, in its unit; null outside of it. */
export function valueAt({ grid: { dims }, voxels, slope, intercept }, voxel) {
  const [x, y, z] = voxel;
  if (voxel.some((place, axis) => place < 0 || place >= dims[axis])) return null;
  return voxels[(z * dims[1] + y) * dims[0] + x] * slope + intercept;
}

/**
 * A slice across the axis of a plane as seen on the screen, the layers painted over each other.
 * @param {Layer[]} layers on one grid; the first one is opaque
 */
export function sliceImage(layers, plane, index) {
  const { dims } = layers[0].volume.grid;
  const [h, v] = IN_PLANE[plane];
  const step = [1, dims[0], dims[0] * dims[1]];
  const image = new ImageData(dims[h], dims[v]);
  for (const layer of layers) paint(image, layer, index * step[ACROSS[plane]], step[h], step[v]);
  return image;
}

// The rows and columns of the screen run against the axes of the volume.
function paint({ data, width, height }, { volume, range, table }, start, across, up) {
  const { voxels, slope, intercept } = volume;
  const factor = 255 / (range[1] - range[0]);
  let pixel = 0;
  for (let row = height - 1; row >= 0; row--) {
    let voxel = start + row * up + (width - 1) * across;
    for (let column = 0; column < width; column++, voxel -= across, pixel += 4) {
      const place = Math.round((voxels[voxel] * slope + intercept - range[0]) * factor);
      const colour = 4 * (place < 0 ? 0 : place > 255 ? 255 : place);
      const alpha = table[colour + 3] / 255;
      if (alpha === 0) continue;
      for (let channel = 0; channel < 3; channel++) data[pixel + channel] += alpha * (table[colour + channel] - data[pixel + channel]);
      data[pixel + 3] = 255;
    }
  }
}
