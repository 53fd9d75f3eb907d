// Texts of users, made safe to show: as visible_text.py, whose test compares both.

const SHORT = { "\r": "\\r", "\t": "\\t" };

/** Return a text of several lines with TOML's escapes for characters that are not printable. */
export function visible(text) {
  return String(text).replace(/(?![ \n])[\p{C}\p{Z}]/gu, (character) => {
    const code = character.codePointAt(0).toString(16);
    return SHORT[character] ?? (code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`);
  });
}
