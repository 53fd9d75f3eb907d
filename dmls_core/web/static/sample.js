// The part of a data file that the server looks at before an upload: rows from all over it.

import { ApiError } from "./app.js";

const WHOLE = /\.(parquet|xls[xmb]?)$/i; // files that are read whole
const HEAD_BYTES = 1 << 20;
const WHOLE_BYTES = 8 << 20;
const PACKED = /\.(gz|zst|zip)$/i;
const PLACES = 16;
const PIECE_BYTES = 64 << 10;
const LONGEST_FOOTER = 64 << 20;
const SECONDS = 20; // longest pass through a file

/** Return the beginning of a text, a whole workbook or Parquet file, or the footer of a large Parquet file. */
export async function sampleOf(file) {
  if (isLargeParquet(file)) {
    const end = new DataView(await file.slice(-8).arrayBuffer());
    const footer = Math.min(8 + end.getUint32(0, true), LONGEST_FOOTER);
    return file.slice(-Math.max(footer, HEAD_BYTES));
  }
  return file.slice(0, WHOLE.test(file.name) ? WHOLE_BYTES : HEAD_BYTES);
}

const isLargeParquet = (file) => /\.parquet$/i.test(file.name) && file.size > WHOLE_BYTES;

const parts = new WeakMap();

/**
 * Return what the server needs to know of a file: `body`, bytes; and `query`, what they are. `progress` is called
 * with the share of the file that was read. Throws an `ApiError` if the file is damaged.
 */
export async function partOf(file, progress) {
  if (!parts.has(file)) parts.set(file, await readPart(file, progress));
  return parts.get(file);
}

async function readPart(file, progress) {
  try {
    if (PACKED.test(file.name)) return await unpackedPart(file, progress);
    if (isLargeParquet(file)) {
      const { readRows } = await import("./parquet_rows.js");
      const rows = await readRows(file, SECONDS, progress);
      const body = new Blob([await sampleOf(file), rows]);
      return { body, query: { size: file.size, rows: rows.size } };
    }
  } catch (error) {
    if (error instanceof ApiError) throw error;
    console.warn(`only a part of ${file.name} is looked at:`, error); // the server says what is wrong with it, if anything
  }
  return { body: await spreadOf(file), query: { size: file.size } };
}

/** Return the whole of a small text, or the beginning of a large one and pieces from places spread over it. */
async function spreadOf(file) {
  if (WHOLE.test(file.name) || PACKED.test(file.name)) return sampleOf(file);
  if (file.size <= HEAD_BYTES + PLACES * PIECE_BYTES) return file;
  const step = Math.floor((file.size - HEAD_BYTES) / PLACES);
  const starts = Array.from({ length: PLACES }, (_, at) => 2 * Math.floor((HEAD_BYTES + (at + 1) * step - PIECE_BYTES) / 2)); // even: UTF-16 has two bytes
  return new Blob([file.slice(0, HEAD_BYTES), ...starts.map((start) => file.slice(start, start + PIECE_BYTES))]);
}

/** Return the part of a compressed text: the beginning of the text, and evenly spaced pieces of it. */
async function unpackedPart(file, progress) {
  const end = performance.now() + 1000 * SECONDS;
  let read = 0;
  const packed = file.stream().pipeThrough(new TransformStream({
    transform(bytes, out) {
      read += bytes.length;
      progress?.(read / file.size);
      out.enqueue(bytes);
    },
  }));
  const { textOf } = await import("./unpacked_text.js");
  const text = await textOf(file, packed);
  const places = new Places();
  const reader = text.getReader();
  let finished = false;
  while (performance.now() < end) {
    const { done, value } = await reader.read();
    if (done) {
      finished = true;
      break;
    }
    places.add(value);
  }
  if (!finished) reader.cancel().catch(() => {});
  return {
    body: new Blob([places.head, ...(finished ? places.pieces : [])]),
    query: { size: finished ? places.size : Math.max(places.size + 1, Math.round((places.size * file.size) / read)), unpacked: true },
  };
}

/** The beginning of a text, and pieces of it that are as far apart as its size so far allows. */
class Places {
  #beginning = new Uint8Array(HEAD_BYTES);
  #pieces = []; // [number of its block, bytes]
  #step = 1;
  size = 0;

  add(bytes) {
    for (let at = 0; at < bytes.length;) {
      const start = this.size - HEAD_BYTES;
      const block = Math.floor(start / (2 * PIECE_BYTES));
      const within = start - block * 2 * PIECE_BYTES;
      let room = -start;
      if (start < 0) this.#beginning.set(bytes.subarray(at, at + room), this.size);
      else if (within < PIECE_BYTES) {
        room = PIECE_BYTES - within;
        if (block % this.#step === 0) this.#keep(block, within, bytes.subarray(at, at + room));
      } else room = 2 * PIECE_BYTES - within;
      const taken = Math.min(room, bytes.length - at);
      at += taken;
      this.size += taken;
    }
  }

  #keep(block, within, bytes) {
    if (!within) {
      if (this.#pieces.length >= 2 * PLACES) {
        this.#step *= 2;
        this.#pieces = this.#pieces.filter(([kept]) => kept % this.#step === 0);
        if (block % this.#step) return;
      }
      this.#pieces.push([block, new Uint8Array(PIECE_BYTES), 0]);
    }
    const piece = this.#pieces.at(-1);
    if (piece?.[0] !== block) return;
    piece[1].set(bytes, within);
    piece[2] = within + bytes.length;
  }

  get head() {
    return this.#beginning.subarray(0, Math.min(this.size, HEAD_BYTES));
  }

  get pieces() {
    return this.#pieces.map(([, bytes, length]) => bytes.subarray(0, length));
  }
}
