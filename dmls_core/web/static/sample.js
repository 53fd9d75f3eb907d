// The part of a data file that the server looks at before an upload: rows from all over a text, or a small file.

const { formats } = document.querySelector("input[type=file][data-formats]").dataset;
const FORMATS = JSON.parse(formats);
const COMPRESSED = /\.(gz|zst|zip)$/i;
const HEAD_BYTES = 1 << 20;
const WHOLE_BYTES = 8 << 20;
const PLACES = 16;
const PIECE_BYTES = 64 << 10;

/** Return the format of a file by its name; undefined if the name does not show it. */
export const formatOf = (name) => {
  const text = name.toLowerCase().replace(COMPRESSED, "");
  return FORMATS.find(({ suffixes }) => suffixes.some((suffix) => text.endsWith(suffix)));
};

/** Return a format by its name in `[data] format`. */
export const namedFormat = (name) => FORMATS.find((format) => format.name === name);

const isText = (name) => !COMPRESSED.test(name) && Boolean(formatOf(name)?.text);

/** Return whether a file must be uploaded before the server can look at it. */
export const mustBeUploaded = ({ name, size }) => !isText(name) && size > WHOLE_BYTES;

/** Return a small file, or the beginning of a large text and pieces from places spread over it. */
export function sampleOf(file) {
  if (!isText(file.name) || file.size <= HEAD_BYTES + PLACES * PIECE_BYTES) return file;
  const step = Math.floor((file.size - HEAD_BYTES) / PLACES);
  const starts = Array.from({ length: PLACES }, (_, at) => 2 * Math.floor((HEAD_BYTES + (at + 1) * step - PIECE_BYTES) / 2)); // even: UTF-16 has two bytes
  return new Blob([file.slice(0, HEAD_BYTES), ...starts.map((start) => file.slice(start, start + PIECE_BYTES))]);
}

/** Return the beginning of a text, compressed or not, or a small file of another format. */
export const beginningOf = (file) => (formatOf(file.name)?.text || COMPRESSED.test(file.name) ? file.slice(0, HEAD_BYTES) : file);
