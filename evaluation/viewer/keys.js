// Keys of the whole page and of the images, the dialog that lists them, and the colour theme.

import { byId } from "./notices.js";

// In these a key is input and not a command; arrows also move radio buttons, sliders and selections.
const takesText = (target) => target.matches("input:not([type=checkbox], [type=range]), textarea");
const takesArrows = (target) => target.matches("input:not([type=checkbox]), select, textarea");

export function listenToKeys(viewer) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open) return;
    if (command(viewer, event)) event.preventDefault();
  });
  byId("help").addEventListener("click", () => byId("help-dialog").showModal());
  byId("theme").addEventListener("click", ({ target }) => {
    const { dataset } = document.documentElement;
    [dataset.theme, target.textContent] = dataset.theme === "dark" ? ["light", "Dark"] : ["dark", "Light"];
  });
}

/** Carry out what the key stands for; false if it stands for nothing here. */
function command(viewer, { key, target }) {
  if (takesText(target)) return key === "Escape" && (target.blur(), true);
  const inImages = target.id === "stage" ? imageKeys(viewer)[key] : undefined;
  const mask = /^[0-9]$/.test(key) ? viewer.panel.maskOfKey(key) : null;
  const action = inImages ?? pageKeys(viewer, !takesArrows(target))[key] ?? (mask === null ? undefined : () => viewer.toggle(mask));
  action?.();
  return Boolean(action);
}

function imageKeys(viewer) {
  return {
    ArrowLeft: () => viewer.moves.moveCrosshair(-1, 0),
    ArrowRight: () => viewer.moves.moveCrosshair(1, 0),
    ArrowUp: () => viewer.moves.moveCrosshair(0, 1),
    ArrowDown: () => viewer.moves.moveCrosshair(0, -1),
    PageUp: () => viewer.moves.scroll(1),
    PageDown: () => viewer.moves.scroll(-1),
  };
}

function pageKeys(viewer, withArrows) {
  const arrows = { ArrowDown: () => viewer.cases.move(1), ArrowUp: () => viewer.cases.move(-1) };
  return {
    ...(withArrows ? arrows : {}),
    j: () => viewer.cases.move(1),
    k: () => viewer.cases.move(-1),
    n: () => viewer.panel.move(1),
    b: () => viewer.panel.move(-1),
    c: () => viewer.hideContours(),
    p: () => viewer.tools.togglePet(),
    w: () => viewer.tools.nextWindow(),
    e: () => viewer.moves.enlarge(),
    f: () => viewer.moves.resetZoom(),
    "+": () => viewer.moves.zoom(1.4),
    "=": () => viewer.moves.zoom(1.4),
    "-": () => viewer.moves.zoom(1 / 1.4),
    "/": () => byId("filter").focus(),
    "?": () => byId("help-dialog").showModal(),
  };
}
