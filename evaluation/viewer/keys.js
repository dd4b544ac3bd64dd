// Keys of the whole page and of the images, the dialog that lists them, and the colour theme.

import { byId, element } from "./notices.js";

// In these a key is input and not a command; arrows also move radio buttons, sliders and selections.
const takesText = (target) => target.matches("input:not([type=checkbox], [type=range]), textarea");
const takesArrows = (target) => target.matches("input:not([type=checkbox]), select, textarea");

// Each line of the help: the keys with their actions, and what they do.
const PAGE_KEYS = [
  [{ j: (v) => v.cases.move(1), k: (v) => v.cases.move(-1), ArrowDown: (v) => v.cases.move(1), ArrowUp: (v) => v.cases.move(-1) }, "next, previous case"],
  [{ n: (v) => v.panel.move(1), b: (v) => v.panel.move(-1) }, "next, previous lesion"],
  [{ 0: null, "1 … 9": null }, "hide or show the contour of the reference (0) or of a team"],
  [{ c: (v) => v.hideContours() }, "hide or show all contours"],
  [{ x: () => byId("crosshair").click() }, "hide or show the crosshair"],
  [{ v: (v) => v.tools.show() }, "next view: CT and PET fused, CT alone, PET alone, all three side by side"],
  [{ p: (v) => v.tools.togglePet() }, "hide or show the PET"],
  [{ w: (v) => v.tools.nextWindow() }, "next CT window"],
  [{ r: (v) => v.tools.take("ruler"), s: (v) => v.tools.take("sphere") }, "draw a ruler or a sphere; again: move the crosshair"],
  [{ Escape: (v) => v.tools.take(null) }, "stop drawing a ruler or sphere"],
  [{ Delete: (v) => v.measurements.remove(1), Backspace: (v) => v.measurements.remove(1) }, "remove the last ruler or sphere"],
  [{ "+": (v) => v.view.zoomBy(1.4), "=": (v) => v.view.zoomBy(1.4), "-": (v) => v.view.zoomBy(1 / 1.4) }, "zoom in, out"],
  [{ f: (v) => v.view.fit(v.lesionBox()) }, "fit the whole images; again: the region with lesions"],
  [{ e: (v) => v.view.enlarge() }, "enlarge the panel last used, or show all four; side by side: next plane"],
  [{ "/": () => byId("filter").focus() }, "go to the filter of the cases"],
  [{ "?": () => byId("help-dialog").showModal() }, "this list"],
];
const IMAGE_KEYS = [
  [
    {
      ArrowLeft: (v) => v.view.step(-1, 0, 0),
      ArrowRight: (v) => v.view.step(1, 0, 0),
      ArrowUp: (v) => v.view.step(0, 1, 0),
      ArrowDown: (v) => v.view.step(0, -1, 0),
    },
    "in the images: move the crosshair",
  ],
  [{ PageUp: (v) => v.view.step(0, 0, 1), PageDown: (v) => v.view.step(0, 0, -1) }, "in the images: change the slice of the plane last used"],
];
const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", PageUp: "Page ↑", PageDown: "Page ↓", "-": "−" };
const actionsOf = (lines) => Object.assign({}, ...lines.map(([actions]) => actions));
const [OF_PAGE, OF_IMAGES] = [actionsOf(PAGE_KEYS), actionsOf(IMAGE_KEYS)];

export function listenToKeys(viewer) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open) return;
    if (command(viewer, event)) event.preventDefault();
  });
  byId("keys").replaceChildren(...[...PAGE_KEYS, ...IMAGE_KEYS].map(([actions, text]) => helpRow(Object.keys(actions).filter((key) => key !== "="), text)));
  byId("help").addEventListener("click", () => byId("help-dialog").showModal());
  byId("theme").addEventListener("click", ({ target }) => {
    const { dataset } = document.documentElement;
    [dataset.theme, target.textContent] = dataset.theme === "dark" ? ["light", "Dark"] : ["dark", "Light"];
  });
}

function helpRow(keys, text) {
  const names = keys.flatMap((key) => [element("kbd", SIGNS[key] ?? key), " "]);
  return element("tr", [element("th", names, { scope: "row" }), element("td", text)]);
}

/** Carry out what the key stands for; false if it stands for nothing here. */
function command(viewer, { key, target }) {
  if (takesText(target)) return key === "Escape" && (target.blur(), true);
  const mask = /^[0-9]$/.test(key) ? viewer.panel.maskOfKey(key) : null;
  const ofPage = takesArrows(target) && key.startsWith("Arrow") ? undefined : OF_PAGE[key];
  const action = (target.id === "stage" && OF_IMAGES[key]) || ofPage || (mask === null ? undefined : () => viewer.toggle(mask));
  action?.(viewer);
  return Boolean(action);
}
