// Values of a spec, where 1 and 1.0 differ: a float without a fraction is {float: 1}.

/** A value as a person types it. */
export function written(value) {
  if (value !== null && typeof value === "object") {
    const text = String(value.float);
    return /[.e]/.test(text) ? text : `${text}.0`;
  }
  return String(value);
}

/** What a person typed, as a value: a number, a truth value or a word. */
export function read(text) {
  const trimmed = text.trim();
  if (trimmed === "true" || trimmed === "false") return trimmed === "true";
  const number = numberOf(trimmed);
  if (number === null) return trimmed;
  return Number.isInteger(number) && /[.eE]/.test(trimmed) ? { float: number } : number;
}

/** A value as a number; null if it is none. */
export function numeric(value) {
  if (typeof value === "number") return value;
  return value !== null && typeof value === "object" ? value.float : null;
}

/** A text as a number; null if it is none. */
export function numberOf(text) {
  const number = Number(text);
  return String(text).trim() !== "" && Number.isFinite(number) ? number : null;
}
