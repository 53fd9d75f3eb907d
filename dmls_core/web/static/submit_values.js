// Values of a spec, where 1 and 1.0 differ: an integral float is {float: 1}.

/** Format a value for an input field. */
export function written(value) {
  if (value !== null && typeof value === "object") {
    const text = String(value.float);
    return /[.e]/.test(text) ? text : `${text}.0`;
  }
  return String(value);
}

/** Parse the text of an input field as a number, a Boolean, or a string. */
export function read(text) {
  const trimmed = text.trim();
  if (trimmed === "true" || trimmed === "false") return trimmed === "true";
  const number = numberOf(trimmed);
  if (number === null) return trimmed;
  return Number.isInteger(number) && /[.eE]/.test(trimmed) ? { float: number } : number;
}

/** Return a value as a number, or null. */
export function numeric(value) {
  if (typeof value === "number") return value;
  return value !== null && typeof value === "object" ? value.float : null;
}

/** Set a key in a table of the spec, or remove it and an empty table if the value is undefined. */
export function setIn(spec, table, key, value) {
  const { [key]: _, ...rest } = spec[table] ?? {};
  const now = value === undefined ? rest : { ...rest, [key]: value };
  if (Object.keys(now).length) spec[table] = now;
  else delete spec[table];
}

/** Parse a text as a number, or return null. */
export function numberOf(text) {
  const number = Number(text);
  return String(text).trim() !== "" && Number.isFinite(number) ? number : null;
}
