// Mouse, pen, touch and wheel on the images.

import { PROJECTION } from "./view.js";

// A wheel turns one slice per notch; a trackpad sends many small steps.
const NOTCH_PIXELS = 40;
const CLICK_PIXELS = 4;

/** Hands what a person does in the images to the viewer, in canvas pixels. */
export class Pointer {
  #drag = null;
  #wheel = 0;

  /** @param {HTMLElement} stage */
  constructor(stage, viewer) {
    this.stage = stage;
    this.viewer = viewer;
    stage.addEventListener("pointerdown", (event) => this.#press(event));
    stage.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, (event) => this.#release(event));
    stage.addEventListener("pointerleave", () => viewer.showCursor(null));
    stage.addEventListener("dblclick", (event) => viewer.tools.tool || viewer.view.enlarge(this.#at(event).plane));
    stage.addEventListener("wheel", (event) => this.#turnWheel(event), { passive: false });
    stage.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  // The panel under the pointer (-1 for none), and the canvas pixel in its first copy. A drag stays in the copy it began in.
  #at(event) {
    const box = this.stage.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    const [x, y] = [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
    const { panel: plane, copy: there } = this.viewer.view.panelAt(x, y);
    const copy = this.#drag?.copy ?? there;
    return { plane, copy, x: x - copy[0], y: y - copy[1] };
  }

  #press(event) {
    if (event.target.matches("input")) return;
    const at = this.#at(event);
    if (at.plane < 0) return;
    event.preventDefault();
    this.stage.focus({ preventScroll: true });
    this.stage.setPointerCapture(event.pointerId);
    const { tools, measurements, view } = this.viewer;
    view.panel = at.plane;
    const kind = kindOf(event, at.plane, tools.tool);
    this.#drag = { ...at, moved: 0, kind };
    if (kind === "crosshair") view.pick(at.plane, at.x, at.y);
    if (kind === tools.tool) measurements.start(kind, at.plane, view.toMm(at.plane, at.x, at.y));
  }

  #move(event) {
    const drag = this.#drag;
    const { plane, x, y } = this.#at(event);
    const { view, tools, measurements } = this.viewer;
    this.viewer.showCursor(view.planes.includes(plane) ? view.toMm(plane, x, y) : null);
    if (!drag) return;
    const [dx, dy] = [x - drag.x, y - drag.y];
    [drag.x, drag.y] = [x, y];
    drag.moved += Math.abs(dx) + Math.abs(dy);
    if (drag.kind === "crosshair") view.pick(drag.plane, x, y);
    if (drag.kind === "pan") view.panBy(drag.plane, dx, dy);
    if (drag.kind === "window") tools.dragWindow(dx, dy);
    if (drag.kind === "turn" && drag.moved > CLICK_PIXELS) tools.turn(dx / 2);
    if (drag.kind === tools.tool) measurements.extend(view.toMm(drag.plane, x, y));
  }

  #release(event) {
    const drag = this.#drag;
    const { x, y } = this.#at(event);
    this.#drag = null;
    this.viewer.measurements.finish();
    if (event.type === "pointerup" && drag?.kind === "turn" && drag.moved <= CLICK_PIXELS) this.viewer.goToHottest(x, y);
  }

  #turnWheel(event) {
    const { plane, x, y } = this.#at(event);
    const { view } = this.viewer;
    if (plane < 0) return;
    event.preventDefault();
    if (plane === PROJECTION) return;
    if (event.ctrlKey) return view.zoomBy(Math.exp(-event.deltaY / 300), view.toMm(plane, x, y));
    this.#wheel += event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? event.deltaY / NOTCH_PIXELS : Math.sign(event.deltaY);
    const slices = Math.max(-3, Math.min(3, Math.trunc(this.#wheel)));
    if (slices === 0) return;
    this.#wheel = 0;
    view.panel = plane;
    view.step(0, 0, -slices);
    this.viewer.showCursor(view.toMm(plane, x, y));
  }
}

function kindOf(event, plane, tool) {
  if (plane === PROJECTION) return "turn";
  if (event.button === 1 || event.shiftKey) return "pan";
  return event.button === 2 ? "window" : (tool ?? "crosshair");
}
