// CT windows and colour maps of the layers.

export const CT_WINDOWS = [
  { name: "Soft tissue", range: [-160, 240] },
  { name: "Brain", range: [0, 80] },
  { name: "Bone", range: [-500, 1500] },
  { name: "Lung", range: [-1350, 150] },
];

// Colours at places from 0 to 255. A map that is usual for a PET by itself (`alone`) starts without the CT.
export const PET_MAPS = [
  { key: "pet-hot", name: "Hot", R: [0, 150, 255, 255, 255], G: [0, 0, 90, 210, 255], B: [0, 0, 0, 60, 255], I: [0, 40, 115, 190, 255] },
  { key: "pet-grey", name: "PET grey", alone: true, R: [255, 0], G: [255, 0], B: [255, 0], I: [0, 255] },
  { key: "pet-rainbow", name: "Rainbow", R: [0, 30, 0, 60, 250, 255], G: [0, 60, 190, 210, 220, 30], B: [60, 220, 220, 60, 30, 20], I: [0, 40, 90, 140, 195, 255] },
  { key: "pet-inferno", name: "Inferno", R: [0, 87, 188, 249, 252], G: [0, 16, 55, 142, 255], B: [4, 110, 84, 9, 164], I: [0, 60, 128, 192, 255] },
];
export const VIRIDIS = { R: [68, 59, 33, 94, 253], G: [1, 82, 145, 201, 231], B: [84, 139, 140, 98, 37], I: [0, 64, 128, 192, 255] };

/** A map in NiiVue's form, without transparency. */
export function opaque({ R, G, B, I }) {
  return { R, G, B, I, A: I.map(() => 255) };
}

/**
 * A map in NiiVue's form for a layer that fades. NiiVue ignores alphas of a layer's map except zeros, and starts its
 * colours at zero, not at the lower end of the range: what lies below that share of the range is transparent here.
 */
export function fading({ R, G, B, I }, share) {
  const first = Math.max(1, Math.round(255 * share));
  const below = first === 1 ? [0] : [0, first - 1];
  const padded = (values) => [...below.map(() => values[0]), ...values];
  return {
    R: padded(R),
    G: padded(G),
    B: padded(B),
    A: [...below.map(() => 0), ...I.map(() => 255)],
    I: [...below, ...I.map((place) => Math.round(first + (place * (255 - first)) / 255))],
  };
}
