// Rows from all over a large Parquet file.

import { compressors, parquetMetadataAsync, parquetRead, parquetSchema } from "./hyparquet.js";

const FIRST = 100; // rows from the beginning
const ROWS = 2_000;
const VALUES = 500_000; // of all columns
const GROUPS = 17; // groups of rows that are read
const LONGEST_TEXT = 1_000;
const MOST_BYTES = 6 << 20;
const TIMES = { TIME_MILLIS: 1e3, TIME_MICROS: 1e6, MILLIS: 1e3, MICROS: 1e6, NANOS: 1e9 };

/**
 * Return rows of a Parquet file as a blob of JSON: `columns`, a list of the values of each, null for nested ones; and `whole`,
 * whether they are from all over the file. Numbers that JSON does not have are texts, times are in ISO 8601.
 */
export async function readRows(file, seconds, progress) {
  const end = performance.now() + 1000 * seconds;
  const source = { byteLength: file.size, slice: (from, to) => file.slice(from, to).arrayBuffer() };
  const metadata = await parquetMetadataAsync(source);
  const fields = parquetSchema(metadata).children;
  const each = Math.max(1, Math.min(ROWS, Math.floor(VALUES / fields.length)));
  const chosen = choose(metadata.row_groups.map((group) => Number(group.num_rows)), each);
  let columns = fields.map(() => []);
  let done = 0;
  for (const { start, rows, indices } of chosen) {
    const found = [];
    for (const [at, field] of fields.entries()) {
      if (performance.now() > end) break;
      found.push(field.children.length ? indices.map(() => null) : await valuesOf(field.element, start, rows, indices));
      progress?.((done + at / fields.length) / chosen.length);
    }
    if (found.length < fields.length) break; // a row is whole or not there
    found.forEach((values, at) => columns[at].push(...values));
    done += 1;
  }
  if (!done) throw new Error("no group of rows could be read in time");
  for (;;) {
    const rows = new Blob([JSON.stringify({ columns, whole: done === chosen.length })]);
    if (rows.size <= MOST_BYTES) return rows;
    columns = columns.map((values) => values.filter((_, row) => row % 2 === 0));
  }

  async function valuesOf(element, rowStart, rows, indices) {
    const second = TIMES[element.logical_type?.type === "TIME" ? element.logical_type.unit : element.converted_type];
    const values = new Map();
    await parquetRead({
      file: source, metadata, compressors, columns: [element.name], rowStart, rowEnd: rowStart + rows,
      onChunk({ columnData, rowStart: first, rowEnd: last }) {
        for (const index of indices) if (index >= first && index < last) values.set(index, plain(columnData[index - first], second));
      },
    });
    return indices.map((index) => values.get(index) ?? null);
  }
}

/** Return which groups of rows to read, and the indices in the file of the rows to keep of each. */
function choose(sizes, rows) {
  const starts = [];
  sizes.reduce((start, size) => (starts.push(start), start + size), 0);
  const full = sizes.map((_, at) => at).filter((at) => sizes[at]);
  const count = Math.min(GROUPS, full.length);
  const groups = [...Array(count).keys()].map((at) => full[count > 1 ? Math.round((at * (full.length - 1)) / (count - 1)) : 0]);
  return groups.map((group, at) => {
    const [start, size] = [starts[group], sizes[group]];
    const wanted = Math.min(size, Math.ceil(rows / count));
    const first = at ? 0 : Math.min(FIRST, wanted);
    const others = Array.from({ length: wanted - first }, (_, row) => first + Math.floor((row * (size - first)) / (wanted - first)));
    return { start, rows: size, indices: [...Array(first).keys(), ...others].map((row) => start + row) };
  });
}

/** Return a value as JSON has it; `second` is that of a time of day, in its units. */
function plain(value, second) {
  if (second && value !== null && value !== undefined) return new Date((Number(value) * 1000) / second).toISOString().slice(11, 23);
  if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (typeof value === "string") return value.slice(0, LONGEST_TEXT);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (value instanceof Uint8Array) return "";
  return typeof value === "boolean" ? value : null;
}
