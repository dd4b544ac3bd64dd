// Files of a case: fetched with progress, unpacked, and masks cropped to their labels.

/** The bytes of a file, unpacked if they are gzip. `onBytes(count)` is called as they arrive. */
export async function fetchVolume(url, signal, onBytes) {
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(await failureOf(response, url));
  const chunks = [];
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    onBytes(value.length);
  }
  const blob = new Blob(chunks);
  // A server that declares `Content-Encoding: gzip` has the browser unpack the file already.
  const start = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  const packed = start[0] === 0x1f && start[1] === 0x8b;
  const stream = packed ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob.stream();
  return new Response(stream).arrayBuffer();
}

/** A JSON document, or an error with the server's message. */
export async function fetchJson(url, signal) {
  const response = await fetch(url, { signal });
  if (!response.ok) throw new Error(await failureOf(response, url));
  const content = await response.json();
  const failure = content.message ?? content.error;
  if (typeof failure === "string") throw new Error(failure);
  return content;
}

async function failureOf(response, url) {
  try {
    const content = await response.json();
    const message = content.message ?? content.error;
    if (typeof message === "string") return message;
  } catch {
    // Not JSON: the status says what there is to say.
  }
  return `${url}: ${response.status} ${response.statusText}`;
}

/**
 * The labels of a mask (NIfTI-1 of unsigned bytes) inside their bounding box, in RAS order.
 * `grid` is that of the case's CT: `dims` in RAS order, and per RAS axis the step and start in the file's array.
 * Returns null for an empty mask.
 */
export function readMask(buffer, grid, name) {
  const header = new DataView(buffer);
  if (buffer.byteLength < 352 || header.getInt32(0, true) !== 348) throw new Error(`${name}: found no NIfTI-1 header`);
  if (header.getInt16(70, true) !== 2) throw new Error(`${name}: found another type, expected unsigned bytes`);
  const count = grid.dims[0] * grid.dims[1] * grid.dims[2];
  const start = header.getFloat32(108, true);
  if (buffer.byteLength < start + count) throw new Error(`${name}: found ${buffer.byteLength - start} voxels, expected ${count}`);
  const voxels = new Uint8Array(buffer, start, count);
  const box = boundingBox(voxels, grid);
  return box && crop(voxels, grid, box);
}

// Most of a mask is zero: whole words of four voxels are skipped.
function boundingBox(voxels, grid) {
  const words = new Uint32Array(voxels.buffer, voxels.byteOffset, voxels.length >> 2);
  const low = [Infinity, Infinity, Infinity];
  const high = [-1, -1, -1];
  const include = (index) => {
    positionOf(index, grid).forEach((place, axis) => {
      low[axis] = Math.min(low[axis], place);
      high[axis] = Math.max(high[axis], place);
    });
  };
  for (let word = 0; word < words.length; word++) {
    if (words[word] === 0) continue;
    for (let index = 4 * word; index < 4 * word + 4; index++) if (voxels[index]) include(index);
  }
  for (let index = 4 * words.length; index < voxels.length; index++) if (voxels[index]) include(index);
  return high[0] < 0 ? null : { low, size: high.map((last, axis) => last - low[axis] + 1) };
}

// RAS position of a place in the file's array.
function positionOf(index, { dims, step }) {
  const position = [0, 0, 0];
  const slowestFirst = [0, 1, 2].sort((a, b) => Math.abs(step[b]) - Math.abs(step[a]));
  let rest = index;
  for (const axis of slowestFirst) {
    const place = Math.floor(rest / Math.abs(step[axis]));
    rest -= place * Math.abs(step[axis]);
    position[axis] = step[axis] > 0 ? place : dims[axis] - 1 - place;
  }
  return position;
}

function crop(voxels, grid, { low, size }) {
  const labels = new Uint8Array(size[0] * size[1] * size[2]);
  let place = 0;
  for (let z = 0; z < size[2]; z++) {
    for (let y = 0; y < size[1]; y++) {
      let from = grid.start + (low[2] + z) * grid.step[2] + (low[1] + y) * grid.step[1] + low[0] * grid.step[0];
      for (let x = 0; x < size[0]; x++, from += grid.step[0]) labels[place++] = voxels[from];
    }
  }
  return { low, size, labels };
}
