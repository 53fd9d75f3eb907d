// Elements made from data: texts become text nodes, so nothing that a user wrote is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. `props`: attributes; `on*`: listeners; `class`, `text` and `value` as one expects. */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Make an SVG element. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = value;
    else if (name === "value" && "value" in element) element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Put `children` in place of what an element holds; what is null or false is left out. */
export function put(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
}

export const byId = (id) => document.getElementById(id);

/** Call `work` once nothing has asked for it for `wait` milliseconds. */
export function debounced(work, wait) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, wait);
  };
}

/** A number for people: at most `digits` significant ones. */
export function shown(number, digits = 4) {
  return Number(number).toLocaleString("en", { maximumSignificantDigits: digits });
}

/** Bytes for people. */
export function bytes(size) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (size >= 1024 && at < units.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${shown(size, 3)} ${units[at]}`;
}

/** A bar of which `share` (0 to 1) is filled. The text beside it says the same. */
export function bar(share, kind = "") {
  return svg(
    "svg",
    { class: `bar-chart ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "rest", width: 100, height: 8 }),
    svg("rect", { class: "part", width: Math.max(0, Math.min(1, share)) * 100, height: 8 }),
  );
}

/** Bars side by side, the highest as high as there is room. */
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
