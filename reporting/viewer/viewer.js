// The page around NiiVue: the list of cases, layers to switch, lesions to jump to, windows and keys.

const CT_WINDOWS = { "Soft tissue": [-160, 240], Brain: [0, 80], Bone: [-500, 1500], Lung: [-1350, 150] };
const PET_MAPS = { hot: "hot", inferno: "inferno", viridis: "viridis", grey: "gray" };
const VIEWS = { "Planes and 3D": "MULTIPLANAR", Axial: "AXIAL", Coronal: "CORONAL", Sagittal: "SAGITTAL", "3D": "RENDER" };
// Number of teams whose contours are shown at first; more would hide the image.
const TEAMS_SHOWN_AT_FIRST = 3;

/** @returns {any} the element with an id */
const byId = (id) => document.getElementById(id);
const cohort = JSON.parse(byId("cohort").textContent);

/** A new element with a text or a list of nodes, and properties such as `className`. @returns {any} */
function createElement(name, content, properties = {}) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...[content].flat());
  return node;
}

const makeSwatch = (colour) => createElement("span", "", { className: "swatch", style: `background: ${colour}` });
// Without the sign of a negative zero.
const formatNumber = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "").replace("-", "−");

// ---- the list of cases

let current = null; // the case that is open, as the server or the page holds it
let wanted = null; // the name of the case that was asked for last
let ahead = { name: null, content: null };
let listed = cohort.cases;
const hidden = new Set(cohort.teams.slice(TEAMS_SHOWN_AT_FIRST).map(({ name }) => name));

/** The value by which a case is sorted: the selected team's value or the mean, null without a value. JSON has no infinity. */
function getValue({ values }, { key, higher_is_better: higher }) {
  const valueByTeam = values[key] ?? {};
  const number = (value) => (value === "inf" ? Infinity : value);
  if ("" in valueByTeam) return valueByTeam[""];
  if (byId("team").value) return number(valueByTeam[byId("team").value] ?? null);
  if (Object.values(valueByTeam).every((value) => value === null)) return null;
  // A team without a value correctly marks nothing.
  const all = Object.values(valueByTeam).map((value) => number(value) ?? (higher ? 1 : 0));
  return all.reduce((sum, value) => sum + value, 0) / all.length;
}

/** Show the cases that pass the filter, the worst values first and cases without a value last. */
function showList() {
  const metric = cohort.metrics.find(({ key }) => key === byId("sort").value);
  const words = byId("filter").value.toLowerCase().split(/\s+/);
  listed = cohort.cases.filter(({ case: name, centre, facts }) => words.every((word) => `${name} ${centre ?? ""} ${facts}`.toLowerCase().includes(word)));
  const value = new Map(listed.map((entry) => [entry, metric ? getValue(entry, metric) : null]));
  const missing = metric?.higher_is_better ? Infinity : -Infinity;
  const place = (entry) => (value.get(entry) ?? missing) * (metric?.higher_is_better ? 1 : -1);
  if (metric) listed.sort((a, b) => Number(value.get(a) === null) - Number(value.get(b) === null) || place(a) - place(b) || 0);
  const text = (entry) => (!metric ? entry.centre ?? "" : value.get(entry) === null ? "–" : Number.isFinite(value.get(entry)) ? formatNumber(value.get(entry), metric.digits) : "∞");
  const button = (entry) => createElement("button", [createElement("span", entry.case), createElement("span", text(entry), { className: "figure" })], { type: "button", onclick: () => open(entry.case) });
  byId("cases").replaceChildren(...listed.map((entry) => createElement("li", button(entry))));
  byId("count").textContent = `${listed.length} of ${cohort.cases.length} cases`;
  markOpen();
}

function markOpen() {
  listed.forEach(({ case: name }, place) => {
    const button = byId("cases").children[place].firstChild;
    button.ariaCurrent = name === wanted ? "true" : null;
    if (name === wanted) button.scrollIntoView({ block: "nearest" });
  });
}

function moveCase(step) {
  const place = listed.findIndex(({ case: name }) => name === wanted);
  const next = listed[Math.max(0, Math.min(listed.length - 1, place + step))];
  if (next && next.case !== wanted) open(next.case);
}

// ---- a case: in this page, or from the server

async function read(name) {
  const inPage = byId(`case-${cohort.cases.findIndex((entry) => entry.case === name)}`);
  if (inPage) return JSON.parse(inPage.textContent);
  const response = await fetch(`case/${encodeURIComponent(name)}`);
  const content = await response.json();
  if (!response.ok) throw new Error(content.error);
  return content;
}

async function open(name) {
  wanted = name;
  markOpen();
  byId("case-title").textContent = name;
  say(`Opening ${name} …`);
  history.replaceState(null, "", `#case=${encodeURIComponent(name)}`);
  try {
    const content = await (ahead.name === name ? ahead.content : read(name));
    if (wanted !== name) return;
    await showVolumes(content);
    if (wanted !== name) return;
    current = content;
    showPanel();
    jump(content.lesions[0]);
    say("");
    prepareNext();
  } catch (problem) {
    if (wanted === name) say(`${name} cannot be shown.\n${problem.message}`);
  }
}

// Request the next case while this one is shown. A problem with the next case is reported when it is opened.
function prepareNext() {
  const next = listed[listed.findIndex(({ case: name }) => name === wanted) + 1]?.case ?? null;
  if (next === null || next === ahead.name) return;
  ahead = { name: next, content: read(next) };
  ahead.content.catch(() => (ahead = { name: null, content: null }));
}

function say(text) {
  byId("message").textContent = text;
}

// ---- volumes in NiiVue

const nv = new niivue.Niivue({
  logLevel: "error",
  dragAndDropEnabled: false,
  isRadiologicalConvention: true,
  sagittalNoseLeft: true,
  multiplanarLayout: niivue.MULTIPLANAR_TYPE.GRID,
  multiplanarShowRender: niivue.SHOW_RENDER.ALWAYS,
  show3Dcrosshair: true,
  crosshairColor: [1, 0.85, 0.2, 0.7],
  crosshairWidthUnit: "mm",
  crosshairWidth: 0.7,
  crosshairGap: 12,
  atlasOutline: 1,
  clipPlaneHotKey: "",
  cycleClipPlaneHotKey: "",
  viewModeHotKey: "",
});
let layers = { pet: null, masks: [] };

// A range is passed, because otherwise NiiVue computes one.
async function load(name, base64, options = {}) {
  return niivue.NVImage.loadFromBase64({ base64, name: `${name}.nii.gz`, cal_min: 0.05, cal_max: 1, ...options });
}

async function showVolumes(content) {
  const ct = await load("CT", content.ct, { colormap: "gray" });
  const pet = content.pet && (await load("PET", content.pet.volume));
  const masks = await Promise.all(content.masks.map(({ name, volume }) => load(name, volume)));
  if (wanted !== content.case) return;
  masks.forEach((mask, place) => mask.setColormapLabel(makeLabelColours(content.masks[place].colour)));
  layers = { pet, masks };
  if (content.pet) adoptPet(content.pet);
  byId("pet-tools").hidden = !content.pet;
  // The reference last, on top of the others.
  nv.volumes = [ct, ...(pet ? [pet] : []), ...masks.slice(1), masks[0]];
  nv.clearAllMeasurements();
  setWindow();
  setLayers(content);
  nv.setVolume(ct, 0);
}

function makeLabelColours(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return { R: [0, r, r], G: [0, g, g], B: [0, b, b], A: [0, 255, 255], I: [0, 1, 2], labels: ["", "GTVp", "GTVn"] };
}

// Adopt the PET's range. A range that the user has set stays until a case has another unit.
function adoptPet({ unit, window: [low, high] }) {
  if (byId("pet-unit").textContent === unit && byId("pet-high").value) return;
  byId("pet-unit").textContent = unit;
  // The lowest fifth of the range is background and shows only the CT.
  Object.assign(byId("pet-low"), { value: high / 5 + low, step: high / 20 });
  Object.assign(byId("pet-high"), { value: high, step: high / 20 });
}

/** Set the chosen CT window, to which a double click returns after the mouse has changed it. */
function setWindow() {
  const ct = nv.volumes[0];
  [ct.cal_min, ct.cal_max] = [ct.robust_min, ct.robust_max] = CT_WINDOWS[byId("ct-window").value];
}

/** Set colours, ranges and opacities of the other volumes from the controls. */
function setLayers(content) {
  const { pet, masks } = layers;
  if (pet) {
    // NiiVue sets a range of its own with each new colour map, so our range is set afterwards.
    const map = PET_MAPS[byId("pet-map").value];
    if (pet.colormap !== map) pet.colormap = map;
    const [low, high] = [byId("pet-low").valueAsNumber, byId("pet-high").valueAsNumber];
    if (high > low) [pet.cal_min, pet.cal_max] = [low, high];
    pet.opacity = byId("pet-opacity").valueAsNumber;
  }
  masks.forEach((mask, place) => (mask.opacity = hidden.has(content.masks[place].name) ? 0 : byId("fill").valueAsNumber));
}

function redraw() {
  if (!current) return;
  setLayers(current);
  nv.updateGLVolume();
  nv.createOnLocationChange();
}

/** Move the crosshair to a lesion, or without a lesion to the middle of the volume. */
function jump(lesion) {
  nv.scene.crosshairPos = lesion ? nv.mm2frac(lesion.centroid_ras_mm, 0, true) : [0.5, 0.5, 0.5];
  chosen = lesion ?? null;
  markLesion();
  nv.drawScene();
  nv.createOnLocationChange();
}

nv.onLocationChange = ({ mm, values }) => {
  const valueByVolume = new Map(nv.volumes.map((volume, place) => [volume, values[place]?.value]));
  const axes = ["R", "A", "S"].map((axis, place) => `${axis} ${formatNumber(mm[place], 1)}`).join("  ");
  const pet = layers.pet && `${byId("pet-unit").textContent} ${formatNumber(valueByVolume.get(layers.pet), byId("pet-unit").textContent === "SUV" ? 2 : 0)}`;
  const labels = layers.masks.map((mask) => mask.opacity > 0 && valueByVolume.get(mask) && `${mask.name.replace(/\.nii\.gz$/, "")} ${["", "GTVp", "GTVn"][valueByVolume.get(mask)]}`);
  byId("readout").textContent = [`${axes} mm`, `HU ${formatNumber(valueByVolume.get(nv.volumes[0]), 0)}`, pet, ...labels].filter(Boolean).join("   ");
};

// ---- the panel of a case

let chosen = null; // the lesion that was jumped to

function showPanel() {
  const { case: name, facts, clinical, answers, masks, notes } = current;
  byId("case-title").replaceChildren(createElement("b", name), `  ${facts}`);
  const head = ["", ...answers.columns].map((title) => createElement(title ? "th" : "td", title));
  const rows = answers.rows.map(({ name: team, texts }) => createElement("tr", [createElement("th", team, { scope: "row" }), ...texts.map((text) => createElement("td", text))]));
  fill("answers", rows.length ? [createElement("thead", createElement("tr", head)), createElement("tbody", rows)] : []);
  fill("clinical", clinical.flatMap(([key, text]) => [createElement("dt", key), createElement("dd", text)]));
  fill("notes", notes.map((text) => createElement("li", text)));
  fill("masks", masks.map(makeMaskRow));
  showLesions();
}

/** Fill a list; its section is hidden while it is empty. */
function fill(id, items) {
  byId(id).replaceChildren(...items);
  byId(id).closest("section").hidden = items.length === 0;
}

function makeMaskRow({ name, colour }, place) {
  const box = createElement("input", [], { type: "checkbox", checked: !hidden.has(name), onchange: () => toggle([name]) });
  return createElement("li", [createElement("label", [box, makeSwatch(colour), name]), ...(place <= 9 ? [createElement("kbd", String(place))] : [])]);
}

/** Switch the contours of some masks on, or off if the first one is on. */
function toggle(names) {
  const on = hidden.has(names[0]);
  for (const name of names) hidden[on ? "delete" : "add"](name);
  byId("masks").querySelectorAll("input").forEach((box, place) => (box.checked = !hidden.has(current.masks[place].name)));
  showLesions();
  redraw();
}

// A team may be called "reference", so the name does not tell. Only the reference's lesions have a status by team.
const isOfReference = ({ status }) => typeof status === "object";
const shownLesions = () => current.lesions.filter((lesion) => isOfReference(lesion) || !hidden.has(lesion.source));

function showLesions() {
  fill("lesions", shownLesions().map((lesion) => createElement("li", makeLesionButton(lesion))));
  markLesion();
}

function makeLesionButton(lesion) {
  const { label, source, volume_ml: volume, suv_max: suv, status } = lesion;
  const colours = Object.fromEntries(current.masks.filter((mask) => !mask.is_reference).map(({ name, colour }) => [name, colour]));
  const marks = isOfReference(lesion)
    ? Object.entries(status).filter(([team]) => !hidden.has(team)).map(([team, found]) => makeMark(found === "found", `${found} by ${team}`, [makeSwatch(colours[team])]))
    : [makeMark(status === "true", `${status} positive of ${source}`, [makeSwatch(colours[source]), `${status} positive `])];
  const text = `${label}  ${volume.toFixed(volume < 10 ? 2 : 1)} ml${suv === null ? "" : `  SUVmax ${suv.toFixed(1)}`}`;
  return createElement("button", [createElement("span", text), createElement("span", marks, { className: "marks" })], { type: "button", onclick: () => jump(lesion) });
}

function makeMark(good, title, content) {
  return createElement("span", [...content, good ? "✓" : "✗"], { className: good ? "good" : "bad", title });
}

function markLesion() {
  if (!current) return;
  shownLesions().forEach((lesion, place) => {
    const button = byId("lesions").children[place]?.firstChild;
    if (button) button.ariaCurrent = lesion === chosen ? "true" : null;
    if (button && lesion === chosen) button.scrollIntoView({ block: "nearest" });
  });
}

function moveLesion(step) {
  const all = current ? shownLesions() : [];
  const place = all.indexOf(chosen);
  if (all.length) jump(all[place < 0 ? 0 : (place + step + all.length) % all.length]);
}

// ---- controls and keys

function selectNext(id) {
  const select = byId(id);
  select.selectedIndex = (select.selectedIndex + 1) % select.length;
  select.dispatchEvent(new Event("change"));
}

function setRuler(on) {
  const { crosshair, measurement, windowing, pan } = niivue.DRAG_MODE;
  byId("ruler").ariaPressed = String(on);
  nv.setMouseEventConfig({ leftButton: { primary: on ? measurement : crosshair, withShift: pan }, rightButton: windowing, centerButton: pan });
  nv.setTouchEventConfig({ singleTouch: on ? measurement : crosshair, doubleTouch: pan });
}

// Each entry: the function of each key, and the line of the help.
const SHORTCUTS = [
  [{ j: () => moveCase(1), k: () => moveCase(-1) }, "next, previous case"],
  [{ n: () => moveLesion(1), b: () => moveLesion(-1) }, "next, previous lesion"],
  [{ c: () => current && toggle(current.masks.map(({ name }) => name)) }, "hide or show all contours"],
  [{ w: () => selectNext("ct-window") }, "next CT window"],
  [{ p: () => { byId("pet-opacity").value = byId("pet-opacity").valueAsNumber > 0 ? 0 : 0.6; redraw(); } }, "hide or show the PET"],
  [{ v: () => selectNext("view") }, "next view"],
  [{ r: () => setRuler(byId("ruler").ariaPressed !== "true") }, "draw rulers, or move the crosshair"],
  [{ f: () => nv.setPan2Dxyzmm([0, 0, 0, 1]) }, "fit the images to the window"],
  [{ "/": () => byId("filter").focus() }, "filter the cases"],
  [{ "?": () => byId("help-dialog").showModal() }, "show these keys"],
];
const OTHER_HELP = [
  ["0 … 9", "hide or show the contour of the reference (0) or of a team"],
  ["Arrows, Page ↑ ↓", "in the images: move the crosshair by a voxel"],
  ["Left button", "move the crosshair, draw a ruler, or turn the 3D view"],
  ["Right button", "width and level of the CT window; double click: the selected window"],
  ["Shift and left button", "drag the images; with the wheel: zoom"],
  ["Wheel", "change the slice"],
];
const ACTIONS = Object.assign({}, ...SHORTCUTS.map(([actions]) => actions));
const STEPS = { ArrowLeft: [1, 0, 0], ArrowRight: [-1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0], PageUp: [0, 0, 1], PageDown: [0, 0, -1] };

// Handle keys before NiiVue, which uses them for other things.
function onKey(event) {
  const { key, target } = event;
  const onImages = target === byId("images");
  if (onImages && key !== "Tab") event.stopPropagation();
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help-dialog").open || target.matches("input:not([type=checkbox]), select")) return;
  const mask = /^[0-9]$/.test(key) ? current?.masks[Number(key)] : null;
  const step = onImages && current && STEPS[key];
  const action = mask ? () => toggle([mask.name]) : step ? () => nv.moveCrosshairInVox(...step) : ACTIONS[key];
  if (!action) return;
  event.preventDefault();
  action();
}

async function start() {
  document.title = byId("title").textContent = cohort.title;
  byId("sort").append(new Option("Case", ""), ...cohort.metrics.map(({ key, title }) => new Option(title, key)));
  byId("team").append(new Option("mean of all teams", ""), ...cohort.teams.map(({ name }) => new Option(name, name)));
  byId("view").append(...Object.entries(VIEWS).map(([title, key]) => new Option(title, key)));
  byId("ct-window").append(...Object.entries(CT_WINDOWS).map(([title, range]) => new Option(`${title} ${range.map((hu) => formatNumber(hu, 0)).join(" to ")}`, title)));
  byId("pet-map").append(...Object.keys(PET_MAPS).map((name) => new Option(name)));
  const help = [...SHORTCUTS.map(([actions, text]) => [Object.keys(actions).join(" "), text]), ...OTHER_HELP];
  byId("keys").append(...help.map(([keys, text]) => createElement("tr", [createElement("th", createElement("kbd", keys), { scope: "row" }), createElement("td", text)])));
  for (const id of ["filter", "sort", "team"]) byId(id).addEventListener("input", showList);
  byId("ct-window").addEventListener("change", () => current && (setWindow(), redraw()));
  for (const id of ["pet-map", "pet-low", "pet-high"]) byId(id).addEventListener("change", redraw);
  for (const id of ["pet-opacity", "fill"]) byId(id).addEventListener("input", redraw);
  byId("view").addEventListener("change", () => nv.setSliceType(niivue.SLICE_TYPE[byId("view").value]));
  byId("ruler").addEventListener("click", () => setRuler(byId("ruler").ariaPressed !== "true"));
  byId("help").addEventListener("click", () => byId("help-dialog").showModal());
  document.addEventListener("keydown", onKey, true);
  document.addEventListener("keyup", (event) => event.target === byId("images") && event.stopPropagation(), true);
  showList();
  say("Starting …");
  try {
    await nv.attachToCanvas(byId("images"));
  } catch (problem) {
    return say(`This browser cannot draw the images: it needs WebGL 2.\n${problem.message}`);
  }
  setRuler(false);
  const asked = new URLSearchParams(location.hash.slice(1)).get("case");
  const first = cohort.cases.find(({ case: name }) => name === asked) ?? listed[0];
  if (first) await open(first.case);
  else say("No cases.");
}

start();
