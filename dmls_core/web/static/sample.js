// The part of a data file that the server looks at before an upload.

const WHOLE = /\.(parquet|xls[xmb]?)$/i; // files that are read whole
const HEAD_BYTES = 1 << 20;
const WHOLE_BYTES = 8 << 20;

/** Return the beginning of a text, a whole workbook or Parquet file, or the end of a large Parquet file. */
export function sampleOf(file) {
  if (/\.parquet$/i.test(file.name) && file.size > WHOLE_BYTES) return file.slice(-HEAD_BYTES);
  return file.slice(0, WHOLE.test(file.name) ? WHOLE_BYTES : HEAD_BYTES);
}
