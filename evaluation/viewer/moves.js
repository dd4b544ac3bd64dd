// Movements of crosshair, slices and images, by keys, mouse and lists.

// NiiVue's planes, and the axis (R, A, S) across each.
const ACROSS = [2, 1, 0];

export class Moves {
  #viewer;
  #panel = 0;

  constructor(viewer) {
    this.#viewer = viewer;
  }

  get #images() {
    return this.#viewer.images;
  }

  #change(change) {
    if (!this.#viewer.case) return;
    change();
    this.#viewer.draw();
  }

  /** Remember the panel that a person last used: keys act on it. */
  focus(panel) {
    this.#panel = panel;
  }

  /** Move the crosshair to a position in mm. */
  jump(mm) {
    this.#change(() => (this.#images.position = this.#images.toFraction(mm)));
  }

  /** Move the crosshair to a canvas pixel of a plane. */
  positionAt(plane, x, y) {
    this.#change(() => (this.#images.position = this.#at(plane, x, y)));
  }

  #at(plane, x, y) {
    const view = this.#images.view(plane);
    const position = this.#images.position;
    position[view.h] = (x - view.left) / view.scaleX;
    position[view.v] = (y - view.top) / view.scaleY;
    return position;
  }

  /** Move the crosshair to the hottest voxel behind a canvas pixel of the projection. */
  pick(x, y) {
    const position = this.#viewer.overlay.hottestAt(x, y, this.#viewer.tools.angle);
    if (position) this.#change(() => (this.#images.position = position));
  }

  /** Move through the slices of a plane (by default the one last used), towards the head, front or right. */
  scroll(slices, plane = this.#panel) {
    if (plane in ACROSS) this.#step(ACROSS[plane], slices);
  }

  /** Move the crosshair on the screen of the plane last used. */
  moveCrosshair(right, up) {
    if (!this.#viewer.case || !this.#images.planes.includes(this.#panel)) return;
    const view = this.#images.view(this.#panel);
    this.#step(view.h, right * Math.sign(view.scaleX));
    this.#step(view.v, -up * Math.sign(view.scaleY));
  }

  #step(axis, voxels) {
    this.#change(() => {
      const position = this.#images.position;
      position[axis] += voxels / this.#images.grid.dims[axis];
      this.#images.position = position;
    });
  }

  /** Zoom around a canvas pixel of a plane, or around the crosshair. */
  zoom(factor, plane, x, y) {
    this.#change(() => this.#images.zoomBy(factor, plane === undefined ? undefined : this.#at(plane, x, y)));
  }

  resetZoom() {
    this.#change(() => this.#images.resetZoom());
  }

  pan(plane, dx, dy) {
    this.#change(() => this.#images.panBy(plane, dx, dy));
  }

  /** Give one panel the whole stage, or end that. By default the panel last used. */
  enlarge(panel = this.#panel) {
    if (!this.#viewer.case || panel < 0) return;
    this.#images.enlarged = this.#images.enlarged === null ? panel : null;
    this.#viewer.fit();
  }

  window(dx, dy) {
    this.#viewer.tools.dragWindow(dx, dy);
  }

  turn(dx) {
    this.#viewer.tools.turn(dx / 2);
  }
}
