// The table of jobs: searches as you type, refreshes itself, and keeps its state in the URL.
import { poll, toast } from "./app.js";

const form = document.getElementById("filters");
const table = document.getElementById("table");
let running = null;
let pending = null; // the user's request, until its response arrives

/** Show the table of `url`; write `url` into the address bar if `keep`. */
async function show(url, { keep = true } = {}) {
  if (!keep && pending) return true; // a refresh would cancel the user's request
  running?.abort();
  const controller = (running = new AbortController());
  if (keep) pending = controller;
  const part = new URL(url, location.href);
  part.searchParams.set("part", "table");
  try {
    const response = await fetch(part, { credentials: "same-origin", redirect: "error", signal: controller.signal });
    if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
    const html = await response.text();
    const focused = document.activeElement;
    const again = table.contains(focused) ? focusKey(focused) : null;
    const scrolled = table.querySelector(".scroll")?.scrollLeft ?? 0;
    table.innerHTML = html;
    table.querySelector(".scroll").scrollLeft = scrolled;
    if (again) [...table.querySelectorAll("a, input")].find((item) => focusKey(item) === again)?.focus();
    if (keep) history.replaceState(null, "", url);
    return true;
  } catch (error) {
    if (error.name === "AbortError") return true;
    if (keep) toast(`The table could not be loaded: ${error.message}`, "bad");
    return true;
  } finally {
    if (pending === controller) pending = null;
  }
}

/** Return a key that identifies an element after the table has been replaced. */
function focusKey(item) {
  return item.matches("input") ? `${item.name}=${item.value}` : item.textContent.trim();
}

function formUrl() {
  const url = new URL(form.action);
  for (const [name, value] of new FormData(form)) if (value) url.searchParams.append(name, value);
  return url.href;
}

let typing;
form.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => show(formUrl()), 150);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(formUrl());
});
table.addEventListener("change", (event) => {
  if (event.target.name === "state") show(formUrl());
});
table.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-table]");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const chosen = new URL(link.href).searchParams;
  form.elements.sort.value = chosen.get("sort");
  form.elements.descending.value = String(chosen.get("descending")).toLowerCase();
  show(link.href);
});
form.querySelector("button").hidden = true;
poll(() => show(location.href, { keep: false }), 4);
