// Saves a chart as a standalone SVG, and its data as CSV.
"use strict";

(function (page) {
  const INLINED = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-size", "font-weight", "text-anchor", "opacity"];

  // A copy with every style as an attribute, so that it looks the same outside of the page.
  page.standaloneSvg = function (svg) {
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
    copy.prepend(page.svgElement("rect", { width, height, fill: page_.backgroundColor }));
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
  };

  page.save = function (name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = page.element("a", { href: address, download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };
})(window.page);
