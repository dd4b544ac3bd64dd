// Where the planes of a case lie on the canvas: panels, crosshair, zoom and pan, and how a person moves them. Nothing is
// drawn here.
// Positions are mm to the patient's right, front and head (R, A, S); the volumes' axes run that way, too.

export const PROJECTION = 3;
// The axis across each plane (axial, coronal, sagittal), and its in-plane axes (horizontal, vertical) on the screen.
export const ACROSS = [2, 1, 0];
export const IN_PLANE = [[0, 1], [0, 2], [1, 2]];
const GAP = 3;
const MOST_ZOOM = 12;

/** @typedef {{dims: number[], spacing: number[], origin: number[]}} Grid voxels, mm, and mm of the first voxel's centre */
/** @typedef {{left: number, top: number, width: number, height: number}} Panel in canvas pixels */

export class View {
  /** @type {Grid | null} */
  grid = null;
  /** Panels of the planes and the projection; null for those that an enlarged one hides. @type {(Panel | null)[]} */
  panels = [];
  /** @type {number | null} */
  enlarged = null;
  /** The plane that is shown side by side as CT, PET and both; null for none. @type {number | null} */
  split = null;
  /** Offsets in canvas pixels at which the panel of a plane is drawn. */
  copies = [[0, 0]];
  zoom = 1;
  #position = [0, 0, 0];
  #centre = [0, 0, 0];
  #pixelsPerMm = 1;
  /** The panel that a person last used: keys act on it. */
  panel = 0;

  /** `onChange(isLaidOut)` is called after each move; `isLaidOut` is false if the panels must be laid out again. */
  constructor(onChange) {
    this.onChange = onChange;
  }

  /** @param {Grid | null} grid of the case that is shown */
  setGrid(grid) {
    this.grid = grid;
    if (grid) this.resetZoom();
    else this.panels = [];
  }

  get extentMm() {
    return this.grid.dims.map((count, axis) => count * this.grid.spacing[axis]);
  }

  get middle() {
    const { dims, spacing, origin } = this.grid;
    return origin.map((first, axis) => first + ((dims[axis] - 1) * spacing[axis]) / 2);
  }

  /** The crosshair in mm; it stays on the voxels. */
  get position() {
    return [...this.#position];
  }

  set position(mm) {
    const { dims, spacing, origin } = this.grid;
    this.#position = mm.map((value, axis) => Math.min(origin[axis] + (dims[axis] - 1) * spacing[axis], Math.max(origin[axis], value)));
  }

  /** Index of the voxel at a position, by default the crosshair; it may lie outside of the grid. */
  voxelAt(mm = this.#position) {
    return mm.map((value, axis) => Math.round((value - this.grid.origin[axis]) / this.grid.spacing[axis]));
  }

  /** Axial and coronal share a column, coronal and sagittal a row; an enlarged or split panel has the canvas to itself. */
  layOut(width, height) {
    const [w, d, h] = this.extentMm;
    this.copies = [[0, 0]];
    this.panels = [null, null, null, null];
    if (this.split !== null) {
      const [columns, rows] = width > height ? [3, 1] : [1, 3];
      const [across, down] = [(width + GAP) / columns, (height + GAP) / rows].map(Math.floor);
      this.copies = [0, 1, 2].map((place) => (columns === 3 ? [place * across, 0] : [0, place * down]));
      this.panels[this.split] = { left: 0, top: 0, width: across - GAP, height: down - GAP };
    } else if (this.enlarged === null) {
      const right = Math.max(d, 0.9 * w);
      const column = Math.round(((width - GAP) * w) / (w + right));
      const row = Math.round(((height - GAP) * d) / (d + h));
      const [columns, rows] = [[column, width - GAP - column], [row, height - GAP - row]];
      const panel = (i, j) => ({ left: i * (column + GAP), top: j * (row + GAP), width: columns[i], height: rows[j] });
      this.panels = [panel(0, 0), panel(0, 1), panel(1, 1), panel(1, 0)];
    } else {
      this.panels[this.enlarged] = { left: 0, top: 0, width, height };
    }
    const fits = this.planes.map((plane) => {
      const [across, up] = IN_PLANE[plane].map((axis) => this.extentMm[axis]);
      return Math.min(this.panels[plane].width / across, this.panels[plane].height / up);
    });
    this.#pixelsPerMm = Math.min(...fits);
  }

  /** The planes on the screen: 0 axial, 1 coronal, 2 sagittal. */
  get planes() {
    return [0, 1, 2].filter((plane) => this.panels[plane]);
  }

  /** Canvas pixels of a mm, the same in all planes. */
  get scale() {
    return this.#pixelsPerMm * this.zoom;
  }

  /** The panel at a canvas pixel, -1 without one, and the offset of its copy there. */
  panelAt(x, y) {
    for (const copy of this.copies) {
      const [right, down] = [x - copy[0], y - copy[1]];
      const panel = this.panels.findIndex((one) => one && right >= one.left && down >= one.top && right < one.left + one.width && down < one.top + one.height);
      if (panel >= 0) return { panel, copy };
    }
    return { panel: -1, copy: [0, 0] };
  }

  // The patient's right, and in the sagittal plane the front, is on the left; the head, or the front, is at the top.

  /** Canvas pixel of a position in a plane. */
  toPixel(plane, mm) {
    const { left, top, width, height } = this.panels[plane];
    const [x, y] = IN_PLANE[plane].map((axis) => (mm[axis] - this.#centre[axis]) * this.scale);
    return [left + width / 2 - x, top + height / 2 - y];
  }

  /** Position of a canvas pixel of a plane, in the slice that is shown. */
  toMm(plane, x, y) {
    const { left, top, width, height } = this.panels[plane];
    const [h, v] = IN_PLANE[plane];
    const mm = this.position;
    mm[h] = this.#centre[h] + (left + width / 2 - x) / this.scale;
    mm[v] = this.#centre[v] + (top + height / 2 - y) / this.scale;
    return mm;
  }

  /** Leads from in-plane voxels of a slice, 0 at the first one's edge, to canvas pixels. */
  voxelMatrix(plane) {
    const { origin, spacing } = this.grid;
    const [x, y] = this.toPixel(plane, origin.map((first, axis) => first - spacing[axis] / 2));
    const [width, height] = IN_PLANE[plane].map((axis) => spacing[axis] * this.scale);
    return new DOMMatrix([-width, 0, 0, -height, x, y]);
  }

  /** Zoom by a factor; the given position keeps its place on the screen. */
  zoomBy(factor, around = this.#position) {
    if (!this.grid) return;
    const zoom = Math.min(MOST_ZOOM, Math.max(1, this.zoom * factor));
    this.#centre = this.#centre.map((mm, axis) => around[axis] + ((mm - around[axis]) * this.zoom) / zoom);
    this.zoom = zoom;
    if (zoom === 1) this.resetZoom();
    this.onChange(true);
  }

  resetZoom() {
    this.zoom = 1;
    this.#centre = this.middle;
  }

  /** Zoom so that a box (lowest and highest mm) fills the panels. */
  zoomTo([low, high]) {
    const fits = this.planes.flatMap((plane) => {
      const { width, height } = this.panels[plane];
      return IN_PLANE[plane].map((axis, place) => [width, height][place] / (high[axis] - low[axis]));
    });
    this.zoom = Math.min(MOST_ZOOM, Math.max(1, Math.min(...fits) / this.#pixelsPerMm));
    this.#centre = this.zoom === 1 ? this.middle : low.map((mm, axis) => (mm + high[axis]) / 2);
  }

  /** Show the whole images or, if they are shown, the region of a box; null for none. */
  fit(box) {
    if (!this.grid) return;
    if (this.zoom === 1 && box) this.zoomTo(box);
    else this.resetZoom();
    this.onChange(true);
  }

  /** Move the crosshair to a position in mm, and the images if it is not in them. */
  jump(mm) {
    if (!this.grid) return;
    this.position = mm;
    this.reveal();
    this.onChange(true);
  }

  /** Move the crosshair to a canvas pixel of a plane. */
  pick(plane, x, y) {
    this.position = this.toMm(plane, x, y);
    this.onChange(true);
  }

  /** Move the crosshair on the screen of the plane last used, and through its slices: to the head, front or right. */
  step(right, up, slices) {
    if (!this.grid || !this.planes.includes(this.panel)) return;
    const [h, v] = IN_PLANE[this.panel];
    const voxels = { [h]: -right, [v]: up, [ACROSS[this.panel]]: slices };
    this.jump(this.#position.map((mm, axis) => mm + voxels[axis] * this.grid.spacing[axis]));
  }

  /** Give one panel (by default the one last used) the whole stage, or end that; side by side, show the next plane. */
  enlarge(panel = this.panel) {
    if (!this.grid || panel < 0) return;
    if (this.split !== null) this.panel = this.split = (this.split + 1) % PROJECTION;
    else this.enlarged = this.enlarged === null ? panel : null;
    this.onChange(false);
  }

  /** Show a plane as CT, PET and both side by side, or end that. */
  splitUp(isSplit) {
    this.split = !isSplit ? null : this.panel < PROJECTION ? this.panel : 0;
    this.onChange(false);
  }

  /** Move the images so that the crosshair is in every panel. */
  reveal() {
    const hidden = this.planes.some((plane) => {
      const { left, top, width, height } = this.panels[plane];
      const [x, y] = this.toPixel(plane, this.#position);
      return x < left || y < top || x >= left + width || y >= top + height;
    });
    if (hidden) this.#centre = this.position;
  }

  /** Move the content of a plane by canvas pixels. */
  panBy(plane, dx, dy) {
    const [h, v] = IN_PLANE[plane];
    this.#centre[h] += dx / this.scale;
    this.#centre[v] += dy / this.scale;
    this.onChange(true);
  }
}
