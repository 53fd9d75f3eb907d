// Create elements from data. Strings become text nodes, so user input is never parsed as HTML; what a reader could
// not see is an escape.
import { visible } from "./visible_text.js";

/** Attributes that a reader sees or hears. */
const SHOWN = ["title", "aria-label"];
const SVG = "http://www.w3.org/2000/svg";

/** Create an element. `props` are attributes; `on*` are listeners; `text` and `value` set the content. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Create an SVG element. */
function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") write(element, value);
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : SHOWN.includes(name) ? visible(value) : value);
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : visible(child)));
}

/** Replace the content of an element by a text. */
export function write(element, text) {
  element.textContent = visible(text);
}

/** Replace the children of an element; null and false are skipped. */
export function put(element, ...children) {
  element.replaceChildren(...nodes(children));
}

export const byId = (id) => document.getElementById(id);

/** Return a function that calls `work` once it has not been called for `wait` milliseconds. */
export function debounced(work, wait) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, wait);
  };
}

/** Format a number with at most `digits` significant digits; one of four digits, such as a year, has no comma. */
export function shown(number, digits = 4) {
  return Number(number).toLocaleString("en", { maximumSignificantDigits: digits, useGrouping: "min2" });
}

/** Format a number of bytes. */
export function bytes(size) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${shown(size, 3)} ${units[at]}`;
}

/** Create a bar that is filled by `share` (0 to 1); the text next to it says the same. */
export function bar(share, kind = "") {
  return svg(
    "svg",
    { class: `bar-chart ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rest", width: 100, height: 8 }),
    svg("rect", { class: "part", width: Math.max(0, Math.min(1, share)) * 100, height: 8 }),
  );
}

/** Create a histogram. */
export function bars(counts) {
  const most = Math.max(...counts, 1);
  const wide = 100 / counts.length;
  return svg(
    "svg",
    { class: "histogram", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    counts.map((count, at) => {
      const high = count ? Math.max(1, (22 * count) / most) : 0;
      return svg("rect", { x: at * wide + 0.4, y: 24 - high, width: wide - 0.8, height: high });
    }),
  );
}
