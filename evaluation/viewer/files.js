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
  const voxels = new Uint8Array(buffer, header.getFloat32(108, true));
  const [nx, ny, nz] = grid.dims;
  if (voxels.length < nx * ny * nz) throw new Error(`${name}: found ${voxels.length} voxels, expected ${nx * ny * nz}`);
  const box = boundingBox(voxels, grid);
  return box && crop(voxels, grid, box);
}

function boundingBox(voxels, grid) {
  const low = [Infinity, Infinity, Infinity];
  const high = [-1, -1, -1];
  const [nx, ny, nz] = grid.dims;
  for (let z = 0; z < nz; z++) {
    for (let y = 0; y < ny; y++) {
      const row = grid.start + z * grid.step[2] + y * grid.step[1];
      for (let x = 0; x < nx; x++) {
        if (voxels[row + x * grid.step[0]] === 0) continue;
        if (x < low[0]) low[0] = x;
        if (x > high[0]) high[0] = x;
        if (y < low[1]) low[1] = y;
        if (y > high[1]) high[1] = y;
        if (z < low[2]) low[2] = z;
        high[2] = z;
      }
    }
  }
  return high[0] < 0 ? null : { low, size: high.map((last, axis) => last - low[axis] + 1) };
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
