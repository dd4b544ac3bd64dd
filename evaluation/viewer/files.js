// Files of a case: fetched with progress, unpacked and read.

/**
 * @typedef {{grid: import("./view.js").Grid, voxels: Uint8Array | Int16Array, slope: number, intercept: number, affine: number[][]}} Volume
 * x runs fastest; `affine` has three rows that lead from voxels to mm (right, front, head)
 */
/** @typedef {{low: number[], size: number[], labels: Uint8Array}} MaskBox labels inside their bounding box, x runs fastest */

/** The bytes of a file, unpacked if they are gzip; `onBytes` takes their number as they arrive. */
export async function fetchBytes(url, signal, onBytes = (_) => {}) {
  const reader = (await request(url, signal)).body.getReader();
  const chunks = [];
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
    onBytes(part.value.length);
  }
  const blob = new Blob(chunks);
  // A server that declares `Content-Encoding: gzip` has the browser unpack the file already.
  const start = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  const packed = start[0] === 0x1f && start[1] === 0x8b;
  const stream = packed ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob.stream();
  return new Response(stream).arrayBuffer();
}

export async function fetchJson(url, signal) {
  return (await request(url, signal)).json();
}

/** The response, or an error with the server's message. */
async function request(url, signal) {
  const response = await fetch(url, { signal });
  if (response.ok) return response;
  const content = await response.json().catch(() => null);
  throw new Error(content?.error ?? `${url}: ${response.status} ${response.statusText}`);
}

/**
 * A NIfTI-1 file as nifti_bytes writes it: little-endian uint8 or int16. `grid` holds for axes to the right, front and head.
 * @returns {Volume}
 */
export function readVolume(buffer, name) {
  const header = new DataView(buffer);
  if (buffer.byteLength < 352 || header.getInt32(0, true) !== 348) throw new Error(`${name}: found no NIfTI-1 header`);
  const floats = (first, step, count = 3) => Array.from({ length: count }, (_, place) => header.getFloat32(first + step * place, true));
  const dims = [0, 1, 2].map((axis) => header.getInt16(42 + 2 * axis, true));
  const Voxels = { 2: Uint8Array, 4: Int16Array }[header.getInt16(70, true)];
  if (!Voxels) throw new Error(`${name}: found another type, expected uint8 or int16`);
  const [count, [start, slope, intercept]] = [dims[0] * dims[1] * dims[2], floats(108, 4)];
  const present = (buffer.byteLength - start) / Voxels.BYTES_PER_ELEMENT;
  if (present < count) throw new Error(`${name}: found ${Math.floor(present)} voxels, expected ${count}`);
  const grid = { dims, spacing: floats(80, 4), origin: floats(292, 16) };
  const affine = [280, 296, 312].map((row) => floats(row, 4, 4));
  return { grid, voxels: new Voxels(buffer, start, count), slope, intercept, affine };
}

/** The labels of a mask's file, which holds their bounding box on the grid of the CT; null for an empty mask. @returns {MaskBox | null} */
export function maskBox({ grid: { dims, origin }, voxels }, ct) {
  const low = origin.map((mm, axis) => Math.round((mm - ct.origin[axis]) / ct.spacing[axis]));
  return voxels.some(Boolean) ? { low, size: dims, labels: voxels } : null;
}
