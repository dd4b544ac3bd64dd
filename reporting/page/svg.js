// SVG elements, the width of their texts, and figures and data saved as files.

const FONT_PX = 12;
const canvas = document.createElement("canvas").getContext("2d");

function getTextWidth(text, weight = 400) {
  canvas.font = `${weight} ${FONT_PX}px ${getComputedStyle(document.body).fontFamily}`;
  return canvas.measureText(text).width;
}

// Return the text, or its beginning with an ellipsis if it is wider than `width`.
function shorten(text, width) {
  const whole = String(text);
  if (getTextWidth(whole) <= width) return whole;
  let length = whole.length;
  while (length > 1 && getTextWidth(`${whole.slice(0, length)}\u2026`) > width) length -= 1;
  return `${whole.slice(0, length)}\u2026`;
}

// Split a text after a space, hyphen or underscore into at most two lines of `width` pixels; the second line is shortened.
function wrapText(text, width) {
  const parts = text.split(/(?<=[ _-])/);
  let first = parts.shift();
  while (parts.length && getTextWidth(`${first}${parts[0]}`.trimEnd(), 600) <= width) first += parts.shift();
  return [first, ...(parts.length ? [parts.join("")] : [])].map((line) => shorten(line.trimEnd(), width * 0.95));
}

function createSvg(name, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

// Make one <svg> of a drawing, with panels, legend and titles at their positions and in their colours on the page.
function makeStandaloneSvg(drawing) {
  const style = getComputedStyle(document.body);
  const origin = drawing.getBoundingClientRect();
  const size = { width: drawing.scrollWidth, height: drawing.scrollHeight };
  const whole = createSvg("svg", { ...size, color: style.color, fill: style.color, "font-family": style.fontFamily, "font-size": FONT_PX });
  whole.append(createSvg("rect", { ...size, fill: style.backgroundColor }));
  for (const part of drawing.querySelectorAll("svg, .panel-title > div, .legend span")) {
    const box = part.getBoundingClientRect();
    const [x, y] = [box.left - origin.left + drawing.scrollLeft, box.top - origin.top + drawing.scrollTop];
    const copy = part.matches("svg") ? part.cloneNode(true) : createSvg("text", { "font-weight": getComputedStyle(part).fontWeight }, part.textContent);
    copy.setAttribute("x", String(x));
    copy.setAttribute("y", String(part.matches("svg") ? y : y + FONT_PX));
    whole.append(copy);
  }
  const text = new XMLSerializer().serializeToString(whole).replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name));
  return `<?xml version="1.0" encoding="UTF-8"?>\n${text}\n`;
}

function saveFile(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = create("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
