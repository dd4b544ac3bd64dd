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

  /** Move the crosshair to a position in mm. */
  jump(mm) {
    this.#change((view) => (view.position = mm));
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
    this.#change((view) => {
      const mm = view.position;
      mm[axis] += voxels * view.grid.spacing[axis];
      view.position = mm;
    });
  }

  /** Zoom around a canvas pixel of a plane, or around the crosshair. */
  zoom(factor, plane, x, y) {
    this.#change((view) => view.zoomBy(factor, plane === undefined ? undefined : view.toMm(plane, x, y)));
  }

  resetZoom() {
    this.#change((view) => view.resetZoom());
  }

  pan(plane, dx, dy) {
    this.#change((view) => view.panBy(plane, dx, dy));
  }

  /** Give one panel the whole stage, or end that. By default the panel last used. */
  enlarge(panel = this.panel) {
    if (!this.#viewer.case || panel < 0) return;
    this.#view.enlarged = this.#view.enlarged === null ? panel : null;
    this.#viewer.fit();
  }
}
