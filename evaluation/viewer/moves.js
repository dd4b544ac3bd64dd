// Movements of crosshair, slices and images, by keys, mouse and lists.

import { ACROSS, IN_PLANE, PROJECTION } from "./view.js";

export class Moves {
  #viewer;
  #view;
  /** The panel that a person last used: keys act on it. */
  panel = 0;

  constructor(viewer) {
    this.#viewer = viewer;
    this.#view = viewer.view;
  }

  #change(change) {
    if (!this.#viewer.case) return;
    change(this.#view);
    this.#viewer.draw();
  }

  /** Move the crosshair to a position in mm, and the images if it is not in them. */
  jump(mm) {
    this.#change((view) => {
      view.position = mm;
      view.reveal();
    });
  }

  /** Move the crosshair to a canvas pixel of a plane. */
  positionAt(plane, x, y) {
    this.#change((view) => (view.position = view.toMm(plane, x, y)));
  }

  /** Move the crosshair to the hottest voxel behind a canvas pixel of the projection. */
  pick(x, y) {
    const mm = this.#viewer.scene?.projection?.hottestAt(this.#view.panels[PROJECTION], this.#viewer.tools.angle, x, y);
    if (mm) this.jump(mm);
  }

  /** Move through the slices of a plane (by default the one last used), towards the head, front or right. */
  scroll(slices, plane = this.panel) {
    if (plane in ACROSS) this.#step(ACROSS[plane], slices);
  }

  /** Move the crosshair on the screen of the plane last used. */
  moveCrosshair(right, up) {
    if (!this.#view.planes.includes(this.panel)) return;
    const [h, v] = IN_PLANE[this.panel];
    this.#step(h, -right);
    this.#step(v, up);
  }

  #step(axis, voxels) {
    const mm = this.#view.position;
    if (this.#view.grid) this.jump(mm.map((value, one) => (one === axis ? value + voxels * this.#view.grid.spacing[axis] : value)));
  }

  /** Zoom around a canvas pixel of a plane, or around the crosshair. */
  zoom(factor, plane, x, y) {
    this.#change((view) => view.zoomBy(factor, plane === undefined ? undefined : view.toMm(plane, x, y)));
  }

  /** Show the whole images or, if they are shown, the region with lesions. */
  fit() {
    const box = this.#viewer.lesionBox();
    this.#change((view) => (view.zoom === 1 && box ? view.zoomTo(box) : view.resetZoom()));
  }

  pan(plane, dx, dy) {
    this.#change((view) => view.panBy(plane, dx, dy));
  }

  /** Give one panel (by default the one last used) the whole stage, or end that; side by side, show the next plane. */
  enlarge(panel = this.panel) {
    if (!this.#viewer.case || panel < 0) return;
    if (this.#view.split !== null) this.panel = this.#view.split = (this.#view.split + 1) % PROJECTION;
    else this.#view.enlarged = this.#view.enlarged === null ? panel : null;
    this.#viewer.fit();
  }
}
