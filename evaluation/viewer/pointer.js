// Mouse, pen, touch and wheel on the images.

import { PROJECTION } from "./view.js";

// A wheel turns one slice per notch; a trackpad sends many small steps.
const NOTCH_PIXELS = 40;

/** Hands what a person does in the images to the viewer, in canvas pixels. */
export class Pointer {
  #stage;
  #viewer;
  #moves;
  #drag = null;
  #wheel = 0;

  constructor(stage, viewer) {
    this.#stage = stage;
    this.#viewer = viewer;
    this.#moves = viewer.moves;
    stage.addEventListener("pointerdown", (event) => this.#press(event));
    stage.addEventListener("pointermove", (event) => this.#move(event));
    stage.addEventListener("pointerup", (event) => this.#release(event));
    stage.addEventListener("pointercancel", (event) => this.#release(event));
    stage.addEventListener("pointerleave", () => viewer.showCursor(null));
    stage.addEventListener("dblclick", (event) => viewer.tools.tool || this.#moves.enlarge(this.#at(event).plane));
    stage.addEventListener("wheel", (event) => this.#turnWheel(event), { passive: false });
    stage.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  // The panel under the pointer (-1 for none), and the canvas pixel in its first copy. A drag stays in the copy it began in.
  #at(event) {
    const box = this.#stage.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    const [x, y] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
    const { view } = this.#viewer;
    const { panel: plane, copy: there } = view.grid ? view.panelAt(x, y) : { panel: -1, copy: [0, 0] };
    const copy = this.#drag?.copy ?? there;
    return { plane, copy, x: x - copy[0], y: y - copy[1] };
  }

  #press(event) {
    if (event.target.matches("input")) return;
    const { plane, copy, x, y } = this.#at(event);
    if (plane < 0) return;
    event.preventDefault();
    this.#stage.focus({ preventScroll: true });
    this.#stage.setPointerCapture(event.pointerId);
    this.#moves.panel = plane;
    const { tools, measurements, view } = this.#viewer;
    const kind = kindOf(event, plane, tools.tool);
    this.#drag = { plane, copy, x, y, moved: 0, kind };
    if (kind === "crosshair") this.#moves.positionAt(plane, x, y);
    if (kind === tools.tool) measurements.start(kind, plane, view.toMm(plane, x, y));
  }

  #move(event) {
    const drag = this.#drag;
    const { plane, x, y } = this.#at(event);
    const { view, measurements } = this.#viewer;
    this.#viewer.showCursor(view.planes.includes(plane) ? view.toMm(plane, x, y) : null);
    if (!drag) return;
    const [dx, dy] = [x - drag.x, y - drag.y];
    [drag.x, drag.y] = [x, y];
    drag.moved += Math.abs(dx) + Math.abs(dy);
    if (drag.kind === "crosshair") this.#moves.positionAt(drag.plane, x, y);
    if (drag.kind === "pan") this.#moves.pan(drag.plane, dx, dy);
    if (drag.kind === "window") this.#viewer.tools.dragWindow(dx, dy);
    if (drag.kind === "turn" && drag.moved > 4) this.#viewer.tools.turn(dx / 2);
    if (["ruler", "sphere"].includes(drag.kind)) measurements.extend(view.toMm(drag.plane, x, y));
  }

  #release(event) {
    const drag = this.#drag;
    const { x, y } = this.#at(event);
    this.#drag = null;
    if (["ruler", "sphere"].includes(drag?.kind)) this.#viewer.measurements.finish();
    if (event.type === "pointerup" && drag?.kind === "turn" && drag.moved <= 4) this.#moves.pick(x, y);
  }

  #turnWheel(event) {
    const { plane, x, y } = this.#at(event);
    if (plane < 0) return;
    event.preventDefault();
    if (plane === PROJECTION) return;
    if (event.ctrlKey) return this.#moves.zoom(Math.exp(-event.deltaY / 300), plane, x, y);
    this.#wheel += event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? event.deltaY / NOTCH_PIXELS : Math.sign(event.deltaY);
    const slices = Math.max(-3, Math.min(3, Math.trunc(this.#wheel)));
    if (slices === 0) return;
    this.#wheel = 0;
    this.#moves.panel = plane;
    this.#moves.scroll(-slices, plane);
    this.#viewer.showCursor(this.#viewer.view.toMm(plane, x, y));
  }
}

function kindOf(event, plane, tool) {
  if (plane === PROJECTION) return "turn";
  if (event.button === 1 || event.shiftKey) return "pan";
  return event.button === 2 ? "window" : (tool ?? "crosshair");
}
