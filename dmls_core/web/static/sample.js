// The part of a data file that the server looks at before an upload.

const WHOLE = /\.(parquet|xls[xmb]?)$/i; // files that are read whole
const HEAD_BYTES = 1 << 20;
const WHOLE_BYTES = 8 << 20;
const PACKED = /\.(gz|zst|zip)$/i;
const PLACES = 16;
const PIECE_BYTES = 64 << 10;

/** Return the beginning of a text, a whole workbook or Parquet file, or the end of a large Parquet file. */
export function sampleOf(file) {
  if (/\.parquet$/i.test(file.name) && file.size > WHOLE_BYTES) return file.slice(-HEAD_BYTES);
  return file.slice(0, WHOLE.test(file.name) ? WHOLE_BYTES : HEAD_BYTES);
}

/** Return what `sampleOf` does, but of a large text also pieces from places spread over it. */
export function spreadOf(file) {
  if (WHOLE.test(file.name) || PACKED.test(file.name)) return sampleOf(file);
  if (file.size <= HEAD_BYTES + PLACES * PIECE_BYTES) return file;
  const step = Math.floor((file.size - HEAD_BYTES) / PLACES);
  const starts = Array.from({ length: PLACES }, (_, at) => 2 * Math.floor((HEAD_BYTES + (at + 1) * step - PIECE_BYTES) / 2)); // even: UTF-16 has two bytes
  return new Blob([file.slice(0, HEAD_BYTES), ...starts.map((start) => file.slice(start, start + PIECE_BYTES))]);
}
