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
    stage.addEventListener("pointercancel", () => (this.#drag = null));
    stage.addEventListener("dblclick", (event) => this.#moves.enlarge(this.#planeAt(...this.#place(event))));
    stage.addEventListener("wheel", (event) => this.#turnWheel(event), { passive: false });
    stage.addEventListener("contextmenu", (event) => event.preventDefault());
  }

  #place(event) {
    const box = this.#stage.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    return [(event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio];
  }

  #planeAt(x, y) {
    const { view } = this.#viewer;
    return view.grid ? view.panelAt(x, y) : -1;
  }

  #press(event) {
    if (event.target.matches("input")) return;
    const [x, y] = this.#place(event);
    const plane = this.#planeAt(x, y);
    if (plane < 0) return;
    event.preventDefault();
    this.#stage.focus({ preventScroll: true });
    this.#stage.setPointerCapture(event.pointerId);
    this.#moves.panel = plane;
    this.#drag = { plane, x, y, moved: 0, kind: kindOf(event, plane) };
    if (this.#drag.kind === "crosshair") this.#moves.positionAt(plane, x, y);
  }

  #move(event) {
    const drag = this.#drag;
    if (!drag) return;
    const [x, y] = this.#place(event);
    const [dx, dy] = [x - drag.x, y - drag.y];
    [drag.x, drag.y] = [x, y];
    drag.moved += Math.abs(dx) + Math.abs(dy);
    if (drag.kind === "crosshair") this.#moves.positionAt(drag.plane, x, y);
    if (drag.kind === "pan") this.#moves.pan(drag.plane, dx, dy);
    if (drag.kind === "window") this.#viewer.tools.dragWindow(dx, dy);
    if (drag.kind === "turn" && drag.moved > 4) this.#viewer.tools.turn(dx / 2);
  }

  #release(event) {
    const drag = this.#drag;
    this.#drag = null;
    if (drag?.kind === "turn" && drag.moved <= 4) this.#moves.pick(...this.#place(event));
  }

  #turnWheel(event) {
    const [x, y] = this.#place(event);
    const plane = this.#planeAt(x, y);
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
  }
}

function kindOf(event, plane) {
  if (plane === PROJECTION) return "turn";
  if (event.button === 1 || event.shiftKey) return "pan";
  return event.button === 2 ? "window" : "crosshair";
}
