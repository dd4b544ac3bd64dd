// The address holds the open case and the crosshair: `#case=ID&pos=x,y,z`, in mm to the patient's right, front and head.

/** The case (undefined without one) and the position (null without a readable one) of the address. */
export function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  const mm = (address.get("pos") ?? "").split(",").map(Number);
  return { name: address.get("case") ?? undefined, position: mm.length === 3 && mm.every(Number.isFinite) ? mm : null };
}

export function writeAddress(name, mm = null) {
  const position = mm ? `&pos=${mm.map((value) => value.toFixed(1)).join(",")}` : "";
  const address = `#case=${encodeURIComponent(name)}${position}`;
  if (location.hash !== address) history.replaceState(null, "", address);
}
