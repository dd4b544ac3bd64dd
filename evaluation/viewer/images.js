// The volumes of a case in NiiVue: fused planes, windows, colour maps, and the geometry of the planes on the canvas.
/* global niivue */

import { PET_MAPS, VIRIDIS, fading, opaque } from "./colours.js";

// Fused layers fade below this share of their range, so that tissue without uptake shows the CT.
const TRANSPARENT_BELOW = 0.25;
// Types of colour maps in NiiVue: from the lower threshold on, or from zero and fading below the threshold.
const [OPAQUE, FADING] = [0, 1];

// Axis across each plane of NiiVue (axial, coronal, sagittal), and the in-plane axes on the screen.
const ACROSS = [2, 1, 0];
const GAP = 3;

export class Images {
  #nv;
  #uncertainty = null;
  ct = null;
  pet = null;
  panels = [];
  enlarged = null;

  /** Throws where the browser has no WebGL2. */
  static async attach(canvas) {
    if (!document.createElement("canvas").getContext("webgl2")) throw new Error("WebGL2 is missing");
    const images = new Images();
    await images.#start(canvas);
    return images;
  }

  async #start(canvas) {
    const nv = new niivue.Niivue({
      backColor: [0, 0, 0, 1],
      crosshairWidth: 0,
      dragAndDropEnabled: false,
      interactive: false,
      isAntiAlias: false,
      isOrientationTextVisible: false,
      isRadiologicalConvention: true,
      isResizeCanvas: false,
      loadingText: "",
      logLevel: "error",
      sagittalNoseLeft: true,
      show3Dcrosshair: false,
    });
    this.#nv = nv;
    for (const map of PET_MAPS) nv.addColormap(map.key, opaque(map));
    await nv.attachToCanvas(canvas, false);
    this.#skipGradients();
    this.#fillPanels();
  }

  // For its volume rendering NiiVue computes the gradients of the CT with every change of the window, which takes three
  // times as long as all the rest without a graphics card. Nothing here uses them: an empty scissor stops these passes.
  #skipGradients() {
    const empty = {
      uniforms: {},
      use: (gl) => {
        gl.enable(gl.SCISSOR_TEST);
        gl.scissor(0, 0, 0, 0);
      },
    };
    this.#nv.blurShader = this.#nv.sobelFirstOrderShader = empty;
  }

  #upload(volume, layer) {
    this.#nv.refreshLayers(volume, layer);
    this.#nv.gl.disable(this.#nv.gl.SCISSOR_TEST);
  }

  // NiiVue fits each plane into its panel with black margins, into which it does not zoom. Here a plane has the whole
  // panel and its field of view grows instead, with one scale for all planes.
  #fillPanels() {
    const nv = this.#nv;
    const extent = nv.screenFieldOfViewExtendedVox.bind(nv);
    nv.calculateWidthHeight = (_plane, _scale, width, height) => [width, height];
    nv.screenFieldOfViewExtendedVox = (plane) => {
      const field = extent(plane);
      const panel = this.panels[plane];
      [panel.width, panel.height].forEach((pixels, axis) => {
        const middle = (field.mnMM[axis] + field.mxMM[axis]) / 2;
        const half = pixels / this.pixelsPerMm / 2;
        field.mnMM[axis] = middle - half;
        field.mxMM[axis] = middle + half;
        field.fovMM[axis] = 2 * half;
      });
      return field;
    };
  }

  /** Show a case: buffers of unpacked NIfTI files; `pet` may be null. */
  async show(ctBuffer, ctRange, petBuffer, petSettings) {
    const ct = await niivue.NVImage.new(ctBuffer, "ct.nii", "gray", 1, null, ...ctRange);
    const pet = petBuffer && (await niivue.NVImage.new(petBuffer, "pet.nii", "gray", 1, null, ...petSettings.range));
    this.#uncertainty = null;
    this.ct = ct;
    this.pet = pet;
    if (pet) this.#stylePet(petSettings);
    this.#nv.scene.pan2Dxyzmm = [0, 0, 0, 1];
    this.#setVolumes();
  }

  /** Remove the case from the screen and from memory. */
  clear() {
    this.ct = this.pet = this.#uncertainty = null;
    this.#nv.volumes = [];
    this.#nv.overlays = [];
    this.#nv.back = null;
    this.#nv.drawScene();
  }

  // All volumes at once: NiiVue's addVolume uploads the earlier ones again for each.
  #setVolumes() {
    const nv = this.#nv;
    nv.volumes = [this.ct, this.pet, this.#uncertainty].filter(Boolean);
    nv.back = this.ct;
    nv.overlays = nv.volumes.slice(1);
    this.layOut();
    nv.volumes.forEach((volume, layer) => this.#upload(volume, layer));
  }

  #refreshOverlays() {
    this.#nv.overlays.forEach((volume, place) => this.#upload(volume, place + 1));
  }

  setCtWindow(range) {
    if (!this.ct) return;
    [this.ct.cal_min, this.ct.cal_max] = range;
    this.#upload(this.ct, 0);
  }

  setPet(settings) {
    if (!this.pet) return;
    this.#stylePet(settings);
    this.#refreshOverlays();
  }

  #stylePet({ range, map, opacity }) {
    const colours = PET_MAPS.find(({ key }) => key === map);
    this.pet.opacity = opacity;
    if (colours.alone) {
      [this.pet.cal_min, this.pet.cal_max] = range;
      this.pet.colormap = map;
      this.pet.colormapType = OPAQUE;
    } else this.#fade(this.pet, "fused", colours, range);
  }

  #fade(volume, key, map, [low, high]) {
    this.#nv.addColormap(key, fading(map, low / high));
    [volume.cal_min, volume.cal_max] = [low + TRANSPARENT_BELOW * (high - low), high];
    volume.colormap = key;
    volume.colormapType = FADING;
  }

  /** A map above the PET; null removes it. */
  async setUncertainty(buffer, range, opacity) {
    this.#uncertainty = buffer && (await niivue.NVImage.new(buffer, "uncertainty.nii", "gray", opacity, null, ...range));
    if (buffer) this.#fade(this.#uncertainty, "uncertainty", VIRIDIS, range);
    this.#setVolumes();
  }

  setUncertaintyOpacity(opacity) {
    if (!this.#uncertainty) return;
    this.#uncertainty.opacity = opacity;
    this.#refreshOverlays();
  }

  /** Colours of a PET map: 256 times red, green, blue, alpha. */
  colours(map) {
    return this.#nv.colormap(map);
  }

  /** The voxel grid of the case in RAS order; steps and start lead into the files' arrays. */
  get grid() {
    const { dimsRAS, pixDimsRAS, img2RASstep, img2RASstart } = this.ct;
    return {
      dims: dimsRAS.slice(1, 4),
      spacing: pixDimsRAS.slice(1, 4),
      step: img2RASstep,
      start: img2RASstart[0] + img2RASstart[1] + img2RASstart[2],
    };
  }

  /** Voxel values of the PET with what turns them into the shown unit. */
  get petVoxels() {
    const { img, hdr } = this.pet;
    return { voxels: img, scale: { slope: hdr.scl_slope || 1, intercept: hdr.scl_inter || 0 } };
  }

  // Position: fractions of the volume along R, A, S.

  get position() {
    return Array.from(this.#nv.scene.crosshairPos);
  }

  set position(fraction) {
    this.#nv.scene.crosshairPos = fraction.map((part, axis) => {
      const half = 0.5 / this.grid.dims[axis];
      return Math.min(1 - half, Math.max(half, part));
    });
  }

  get positionMm() {
    return Array.from(this.#nv.frac2mm(this.#nv.scene.crosshairPos, 0, true)).slice(0, 3);
  }

  get middleMm() {
    return Array.from(this.#nv.frac2mm([0.5, 0.5, 0.5], 0, true)).slice(0, 3);
  }

  toFraction(mm) {
    return Array.from(this.#nv.mm2frac(mm, 0, true));
  }

  /** Index of the voxel at the crosshair. */
  get voxel() {
    return this.position.map((part, axis) => Math.min(this.grid.dims[axis] - 1, Math.floor(part * this.grid.dims[axis])));
  }

  /** Values at the crosshair; null without that volume. */
  get values() {
    const [x, y, z] = this.voxel;
    return { ct: this.ct.getValue(x, y, z), pet: this.pet ? this.pet.getValue(x, y, z) : null };
  }

  /**
   * Panels (axial, coronal, sagittal, projection) in canvas pixels: axial and coronal share a column, coronal and
   * sagittal a row. An enlarged one has the canvas to itself, and the others are null.
   */
  layOut() {
    const { width, height } = this.#nv.gl.canvas;
    const sizeMm = this.grid.dims.map((n, axis) => n * this.grid.spacing[axis]);
    const [w, d, h] = sizeMm;
    if (this.enlarged === null) {
      const right = Math.max(d, 0.9 * w);
      const column = Math.round(((width - GAP) * w) / (w + right));
      const row = Math.round(((height - GAP) * d) / (d + h));
      const [columns, rows] = [[column, width - GAP - column], [row, height - GAP - row]];
      const panel = (i, j) => ({ left: i * (column + GAP), top: j * (row + GAP), width: columns[i], height: rows[j] });
      this.panels = [panel(0, 0), panel(0, 1), panel(1, 1), panel(1, 0)];
    } else {
      this.panels = [null, null, null, null];
      this.panels[this.enlarged] = { left: 0, top: 0, width, height };
    }
    const fits = this.planes.map((plane) => {
      const [across, up] = [0, 1, 2].filter((axis) => axis !== ACROSS[plane]).map((axis) => sizeMm[axis]);
      return Math.min(this.panels[plane].width / across, this.panels[plane].height / up);
    });
    this.pixelsPerMm = Math.min(...fits);
    this.#nv.customLayout = this.planes.map((plane) => ({ sliceType: plane, position: fractions(this.panels[plane], width, height) }));
  }

  /** The planes on the screen: 0 axial, 1 coronal, 2 sagittal. */
  get planes() {
    return [0, 1, 2].filter((plane) => this.panels[plane]);
  }

  draw() {
    if (this.ct && this.planes.length) this.#nv.drawScene();
  }

  /** Wait until everything drawn so far is there; a graphics driver works behind the page. */
  finish() {
    const { gl } = this.#nv;
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
  }

  get zoom() {
    return this.#nv.scene.pan2Dxyzmm[3];
  }

  /** Zoom by a factor; the given position keeps its place on the screen. */
  zoomBy(factor, around = this.position) {
    const pan = this.#nv.scene.pan2Dxyzmm;
    const zoom = Math.min(12, Math.max(1, pan[3] * factor));
    if (zoom === 1) return this.resetZoom();
    const mm = this.#nv.frac2mm(around);
    this.#nv.scene.pan2Dxyzmm = [0, 1, 2].map((axis) => pan[axis] + mm[axis] * (pan[3] - zoom)).concat(zoom);
  }

  resetZoom() {
    this.#nv.scene.pan2Dxyzmm = [0, 0, 0, 1];
  }

  /** Move the content of a plane by pixels of the canvas. */
  panBy(plane, dx, dy) {
    const view = this.view(plane);
    const pan = Array.from(this.#nv.scene.pan2Dxyzmm);
    pan[view.h] += (dx / view.scaleX) * this.#extentMm(view.h) * pan[3];
    pan[view.v] += (dy / view.scaleY) * this.#extentMm(view.v) * pan[3];
    this.#nv.scene.pan2Dxyzmm = pan;
  }

  #extentMm(axis) {
    return this.grid.dims[axis] * this.grid.spacing[axis];
  }

  /**
   * How a plane lies on the canvas: in-plane axes h and v, the axis across, and x = left + scaleX * fraction[h],
   * y = top + scaleY * fraction[v].
   */
  view(plane) {
    const tile = this.#nv.screenSlices.find((slice) => slice.axCorSag === plane);
    const across = ACROSS[plane];
    const [h, v] = [0, 1, 2].filter((axis) => axis !== across);
    const corner = (fraction) => {
      const mm = this.#nv.frac2mm(fraction);
      const [x, y, width, height] = tile.leftTopWidthHeight;
      const right = (mm[h] - tile.leftTopMM[0]) / tile.fovMM[0];
      const up = (mm[v] - tile.leftTopMM[1]) / tile.fovMM[1];
      return [x + right * width, y + (1 - up) * height];
    };
    const [near, far] = [corner([0, 0, 0]), corner([1, 1, 1])];
    return { across, h, v, left: near[0], top: near[1], scaleX: far[0] - near[0], scaleY: far[1] - near[1], panel: this.panels[plane] };
  }
}

function fractions(panel, width, height) {
  return [panel.left / width, panel.top / height, panel.width / width, panel.height / height];
}
