// Maximum intensity projection around the body's long axis. It is exact, and a click finds the voxel that it shows.

// Voxels are pooled (by their maximum) until they are at least this large: a PET resolves 4 mm.
const SMALLEST_MM = 1.8;

/** The values of a volume in its unit, pooled. @param {import("./files.js").Volume} volume */
export function poolVolume({ grid, voxels, slope, intercept }) {
  const factor = grid.spacing.map((mm) => Math.max(1, Math.ceil(SMALLEST_MM / mm)));
  const dims = grid.dims.map((n, axis) => Math.ceil(n / factor[axis]));
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
  for (let i = 0; i < values.length; i++) values[i] = values[i] * slope + intercept;
  return { dims, spacing: grid.spacing.map((mm, axis) => mm * factor[axis]), low: [0, 0, 0], full: dims, values };
}

/** A mask in the form of `poolVolume`. */
export function maskVolume(mask, grid) {
  return { dims: mask.size, spacing: grid.spacing, low: mask.low, full: grid.dims, values: mask.labels };
}

/**
 * Rays of one angle through a volume: for each column of the picture, the offsets of its voxels in a slice.
 * At 0 degrees the viewer stands in front of the patient, whose right is on the left of the picture.
 */
export class Rays {
  constructor(volume, degrees) {
    const [sx, sy] = volume.spacing;
    const middle = [(volume.full[0] * sx) / 2, (volume.full[1] * sy) / 2];
    this.volume = volume;
    this.degrees = degrees;
    this.pitch = Math.min(sx, sy);
    const diagonal = Math.ceil(Math.hypot(volume.full[0] * sx, volume.full[1] * sy) / this.pitch);
    // Seen along an axis of the volume, rays and steps then go through the middles of voxels and not along their edges.
    const [across, along] = Math.round(degrees / 90) % 2 === 0 ? [0, 1] : [1, 0];
    this.width = diagonal + ((diagonal + volume.full[across]) % 2);
    const depth = diagonal + ((diagonal + volume.full[along]) % 2);
    const places = (count) => Array.from({ length: count }, (_, place) => (place + 0.5 - count / 2) * this.pitch);
    const steps = places(depth);
    this.columns = places(this.width).map((u) => this.#column(u, steps, middle));
  }

  #column(u, steps, middle) {
    const { dims, spacing, low } = this.volume;
    const [sine, cosine] = sinCos(this.degrees);
    const offsets = [];
    for (const t of steps) {
      const x = Math.floor((middle[0] - u * cosine + t * sine) / spacing[0]) - low[0];
      const y = Math.floor((middle[1] + u * sine + t * cosine) / spacing[1]) - low[1];
      if (x >= 0 && y >= 0 && x < dims[0] && y < dims[1]) offsets.push(y * dims[0] + x);
    }
    return Int32Array.from(offsets);
  }

  /** The largest value on each ray, rows from the feet up; `empty` where a ray meets no voxel. */
  maximum(empty) {
    const { dims, values } = this.volume;
    const picture = new Float32Array(this.width * dims[2]).fill(empty);
    const area = dims[0] * dims[1];
    for (let z = 0; z < dims[2]; z++) {
      for (let u = 0; u < this.width; u++) {
        const offsets = this.columns[u];
        let largest = empty;
        for (let i = 0; i < offsets.length; i++) {
          const value = values[z * area + offsets[i]];
          if (value > largest) largest = value;
        }
        picture[z * this.width + u] = largest;
      }
    }
    return picture;
  }

  /** Position (fractions of the volume) of the hottest voxel on the ray through column u in slice z. */
  hottest(u, z) {
    const { dims, values } = this.volume;
    const offsets = this.columns[u];
    if (!offsets || offsets.length === 0 || z < 0 || z >= dims[2]) return null;
    let best = offsets[0];
    for (const offset of offsets) {
      if (values[z * dims[0] * dims[1] + offset] > values[z * dims[0] * dims[1] + best]) best = offset;
    }
    return [((best % dims[0]) + 0.5) / dims[0], (Math.floor(best / dims[0]) + 0.5) / dims[1], (z + 0.5) / dims[2]];
  }

  /** Column (with fraction) of a position given in fractions of the volume. */
  columnOf(fraction) {
    const { full, spacing } = this.volume;
    const [sine, cosine] = sinCos(this.degrees);
    const x = (fraction[0] - 0.5) * full[0] * spacing[0];
    const y = (fraction[1] - 0.5) * full[1] * spacing[1];
    return (-x * cosine + y * sine) / this.pitch + this.width / 2;
  }
}

/** Letters at the left and right of the picture, for the nearest quarter turn. */
export function sideLetters(degrees) {
  return [["R", "L"], ["P", "A"], ["L", "R"], ["A", "P"]][Math.round(degrees / 90) % 4];
}

function sinCos(degrees) {
  const radians = (degrees * Math.PI) / 180;
  return [Math.sin(radians), Math.cos(radians)];
}
