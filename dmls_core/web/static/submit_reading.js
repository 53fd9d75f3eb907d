// How the data file is written: detected by the server, and corrected here.

import { byId, h, put } from "./dom.js";
import { formatOf, namedFormat } from "./sample.js";
import { setIn } from "./submit_values.js";

const DEFAULTS = { delimiter: ",", decimal: ".", thousands: "", numbers: {}, encoding: "utf-8", header: true, skip_rows: 0, sheet: "", missing: [], not_missing: [] };
const CHOICES = {
  delimiter: ["Columns are separated by", [[",", "Commas"], [";", "Semicolons"], ["\t", "Tabs"], ["|", "Vertical bars"]]],
  decimal: ["Decimal mark", [[".", "Point: 0.5"], [",", "Comma: 0,5"]]],
  thousands: ["Thousands are separated by", [["", "Nothing"], [".", "Points"], [",", "Commas"], [" ", "Spaces"], ["'", "Apostrophes"]]],
  encoding: ["Encoding", [
    ["utf-8", "UTF-8"], ["utf-16", "UTF-16"], ["windows-1252", "Western (Windows-1252)"], ["windows-1250", "Central European (Windows-1250)"],
    ["iso-8859-2", "Central European (ISO 8859-2)"], ["windows-1251", "Cyrillic (Windows-1251)"], ["koi8-r", "Cyrillic (KOI8-R)"],
    ["windows-1253", "Greek (Windows-1253)"], ["windows-1254", "Turkish (Windows-1254)"], ["windows-1255", "Hebrew (Windows-1255)"],
    ["windows-1256", "Arabic (Windows-1256)"], ["cp850", "Western (DOS)"], ["cp932", "Japanese (Shift JIS)"], ["euc-jp", "Japanese (EUC)"],
    ["gb18030", "Chinese (GB 18030)"], ["big5", "Chinese (Big5)"], ["cp949", "Korean"],
  ]],
  header: ["The first row has", [[true, "The names of the columns"], [false, "Values: there are no names"]]],
};

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** Return the texts in a list with commas between them: one may be "not available". */
const textsOf = (text) => [...new Set(text.split(",").map((mark) => mark.trim()).filter(Boolean))];

/** Return columns with their marks and units as text. */
const numbersOf = (numbers) => Object.entries(numbers).map(([name, notation]) =>
  `${name} (${Object.entries(notation).map(([key, value]) => `${key} ${value || "none"}`).join(", ")})`).join(", ");

/** Return the keys of [data] on how a file is written that differ from their defaults. */
export function readingOf(document) {
  const data = document?.data ?? {};
  const keys = ["format", ...Object.keys(DEFAULTS)].filter((key) => data[key] !== undefined && !same(data[key], DEFAULTS[key]));
  return Object.fromEntries(keys.map((key) => [key, data[key]]));
}

/** Set these keys in the document. */
export function setReading(document, keys) {
  for (const key of Object.keys(DEFAULTS)) setIn(document, "data", key, same(keys[key], DEFAULTS[key]) ? undefined : keys[key]);
}

/** Whether two objects of keys are the same. */
export const sameReading = (one, other) =>
  ["format", ...Object.keys(DEFAULTS)].every((key) => same(one[key] ?? DEFAULTS[key], other[key] ?? DEFAULTS[key]));

/**
 * Draw the controls of a file: `keys` are those in use, `detected` the names of those that were detected, and
 * `sheets` those of a workbook. `choose` gets the keys of each change.
 */
export function showReading({ file, keys, detected = [], sheets = [] }, choose) {
  const box = byId("reading");
  box.hidden = false;
  const focused = document.activeElement?.id;
  const set = (key, value) => choose(readingOf({ data: { ...keys, [key]: value } }));
  const field = (key, label, control, hint) => h("div", { class: "field" },
    h("label", { for: `reading-${key}` }, label, detected.includes(key) ? [" ", h("span", { class: "badge good", text: "detected" })] : null),
    control, hint ? h("span", { class: "hint", text: hint }) : null);
  const choice = (key) => {
    const [label, options] = CHOICES[key];
    const now = keys[key] ?? DEFAULTS[key];
    return field(key, label, h("select", { id: `reading-${key}`, onchange: (event) => set(key, options[event.target.selectedIndex][0]) },
      options.map(([value, text]) => h("option", { selected: value === now, text }))));
  };
  const texts = (key, label, hint) => field(key, label, h("input", {
    id: `reading-${key}`, type: "text", autocomplete: "off", spellcheck: "false", value: (keys[key] ?? []).join(", "),
    onchange: (event) => set(key, textsOf(event.target.value)),
  }), hint);
  const has = (key) => (keys.format ? namedFormat(keys.format) : formatOf(file) ?? namedFormat("csv"))?.keys.includes(key);
  const sheet = keys.sheet ?? sheets[0] ?? "";
  put(byId("reading-form"), h("div", { class: "general" },
    has("sheet") && field("sheet", "Sheet", sheets.length
      ? h("select", { id: "reading-sheet", onchange: (event) => set("sheet", event.target.value) }, sheets.map((name) => h("option", { value: name, selected: name === sheet, text: name })))
      : h("input", { id: "reading-sheet", type: "text", autocomplete: "off", spellcheck: "false", value: sheet, onchange: (event) => set("sheet", event.target.value.trim()) })),
    Object.keys(CHOICES).filter(has).map(choice),
    has("skip_rows") && field("skip_rows", "Rows above the header", h("input", {
      id: "reading-skip_rows", type: "number", min: 0, max: 1000, step: 1, value: keys.skip_rows ?? 0,
      onchange: (event) => event.target.checkValidity() && set("skip_rows", event.target.valueAsNumber || 0),
    }), "Titles and notes that are not part of the table"),
    keys.numbers && field("numbers", "Numbers of single columns", h("output", { id: "reading-numbers", text: numbersOf(keys.numbers) }),
      "Read otherwise than the rest of the file; [data.numbers] in the spec has them"),
    texts("missing", "Marks of missing values", "Such as - or ?, with commas between them; empty cells always are missing"),
    texts("not_missing", "Not missing", "Of NA, N/A, n/a, NULL, null and None, those that are values of a category"),
  ));
  if (focused?.startsWith("reading-")) byId(focused)?.focus();
}
