// SVG elements, the width of their texts, and figures and data saved as files.

const FONT_PX = 12;
const canvas = document.createElement("canvas").getContext("2d");

function textWidth(text, weight = 400) {
  canvas.font = `${weight} ${FONT_PX}px ${getComputedStyle(document.body).fontFamily}`;
  return canvas.measureText(text).width;
}

// The text, or its beginning with an ellipsis.
function shorten(text, width) {
  const whole = String(text);
  if (textWidth(whole) <= width) return whole;
  let length = whole.length;
  while (length > 1 && textWidth(`${whole.slice(0, length)}\u2026`) > width) length -= 1;
  return `${whole.slice(0, length)}\u2026`;
}

// Lines of at most `width` pixels, two at most, broken after a space, hyphen or underscore; the second one is shortened.
function wrapped(text, width) {
  const parts = text.split(/(?<=[ _-])/);
  let first = parts.shift();
  while (parts.length && textWidth(`${first}${parts[0]}`.trimEnd(), 600) <= width) first += parts.shift();
  return [first, ...(parts.length ? [parts.join("")] : [])].map((line) => shorten(line.trimEnd(), width * 0.95));
}

function svgElement(name, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

// One <svg> of a drawing: panels, legend and titles where they lie on the page, in its colours.
function standaloneSvg(drawing) {
  const style = getComputedStyle(document.body);
  const origin = drawing.getBoundingClientRect();
  const size = { width: drawing.scrollWidth, height: drawing.scrollHeight };
  const whole = svgElement("svg", { ...size, color: style.color, fill: style.color, "font-family": style.fontFamily, "font-size": FONT_PX });
  whole.append(svgElement("rect", { ...size, fill: style.backgroundColor }));
  for (const part of drawing.querySelectorAll("svg, .panel-title > div, .legend span")) {
    const box = part.getBoundingClientRect();
    const [x, y] = [box.left - origin.left + drawing.scrollLeft, box.top - origin.top + drawing.scrollTop];
    const copy = part.matches("svg") ? part.cloneNode(true) : svgElement("text", { "font-weight": getComputedStyle(part).fontWeight }, part.textContent);
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
