// SVG elements, the width of their texts, and figures and data saved as files.

import { create } from "./data.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
export const FONT_PX = 12;
const INLINED = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "text-anchor", "opacity"];
const canvas = document.createElement("canvas").getContext("2d");

export function textWidth(text, weight = 400) {
  canvas.font = `${weight} ${FONT_PX}px ${getComputedStyle(document.body).fontFamily}`;
  return canvas.measureText(text).width;
}

// The text, or its beginning with an ellipsis.
export function shorten(text, width) {
  const whole = String(text);
  if (textWidth(whole) <= width) return whole;
  let length = whole.length;
  while (length > 1 && textWidth(`${whole.slice(0, length)}\u2026`) > width) length -= 1;
  return `${whole.slice(0, length)}\u2026`;
}

export function svgElement(name, attributes = {}, text = "") {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

// A copy with every style as an attribute, so that it looks the same outside of the page.
export function standaloneSvg(svg) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of INLINED) {
      const value = style.getPropertyValue(name);
      if (value) element.setAttribute(name, value);
    }
    for (const name of ["class", "style", "data-row", "data-marks"]) element.removeAttribute(name);
  });
  const [page_, width, height] = [getComputedStyle(document.body), svg.getAttribute("width"), svg.getAttribute("height")];
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("color", page_.color);
  copy.setAttribute("font-family", page_.fontFamily);
  copy.prepend(svgElement("rect", { width, height, fill: page_.backgroundColor }));
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

export function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = create("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
