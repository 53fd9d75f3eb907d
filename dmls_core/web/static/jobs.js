// The table of jobs: searched while one types, refreshed by itself, always at an address that can be kept.
import { poll, toast } from "./app.js";

const form = document.getElementById("filters");
const table = document.getElementById("table");
let running = null;
let asking = null; // what somebody asked for, until its answer is there

/** Bring the table to what `url` asks for; the address bar shows it if `keep`. */
async function show(url, { keep = true } = {}) {
  if (!keep && asking) return true; // a refresh would throw away an answer that is slow
  running?.abort();
  const mine = (running = new AbortController());
  if (keep) asking = mine;
  const part = new URL(url, location.href);
  part.searchParams.set("part", "table");
  try {
    const answer = await fetch(part, { credentials: "same-origin", redirect: "error", signal: mine.signal });
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    const html = await answer.text();
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
    if (keep) toast(`The table could not be read: ${error.message}`, "bad");
    return true;
  } finally {
    if (asking === mine) asking = null;
  }
}

/** What tells an element of the table again after the table was replaced. */
function focusKey(item) {
  return item.matches("input") ? `${item.name}=${item.value}` : item.textContent.trim();
}

function asked() {
  const url = new URL(form.action);
  for (const [name, value] of new FormData(form)) if (value) url.searchParams.append(name, value);
  return url.href;
}

let typing;
form.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => show(asked()), 150);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(asked());
});
table.addEventListener("change", (event) => {
  if (event.target.name === "state") show(asked());
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
