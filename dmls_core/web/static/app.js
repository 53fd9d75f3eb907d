// Shared by all pages: REST API calls, toasts, links that leave Airflow's frame.
import { write } from "./dom.js";

const BASE = document.body.dataset.base;

/** Error response of the API; `problem` holds the problem details (RFC 9457). */
export class ApiError extends Error {
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/** Return what to say of a response without problem details: it is not from DMLS, but from Airflow or a proxy. */
export function unexplained(status) {
  return `The server answered with status ${status} and no reason. Try again; its log, or that of a proxy before it, says more.`;
}

/** Call the API and return its JSON; `path` starts below /api/v1. */
export async function api(path, options = {}) {
  const request = { credentials: "same-origin", ...options };
  if (options.json !== undefined) {
    request.body = JSON.stringify(options.json);
    request.headers = { "Content-Type": "application/json", ...options.headers };
  }
  let response;
  try {
    response = await fetch(`${BASE}/api/v1${path}`, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ status: 0, title: "No response", detail: "Airflow's API server does not respond." });
  }
  if (response.status === 401) {
    location.reload(); // the page redirects to the login and back
    return new Promise(() => {});
  }
  const body = response.status === 204 ? null : await response.json().catch(() => null);
  if (response.ok) return body;
  throw new ApiError(body ?? { status: response.status, title: response.statusText, detail: unexplained(response.status) });
}

/** Show a toast, which screen readers announce; `tone` is "good" or "bad". */
export function toast(message, tone = "good") {
  const box = document.createElement("p");
  box.className = `toast ${tone}`;
  write(box, message);
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), tone === "bad" ? 12000 : 6000);
}

/** Copy a text to the clipboard; `title` names it in the toast. */
export async function copy(text, title) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without a secure context there is no clipboard API.
    const area = document.createElement("textarea");
    area.className = "sr";
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return toast("The browser does not allow this page to copy.", "bad");
  }
  toast(`Copied: ${title}.`);
}

/** Call `work` every `seconds` while the page is visible, until it returns false. */
export function poll(work, seconds) {
  const tick = async () => {
    try {
      if (!document.hidden && (await work()) === false) return;
    } catch (error) {
      console.warn(error); // the next call may succeed
    }
    setTimeout(tick, seconds * 1000);
  };
  setTimeout(tick, seconds * 1000);
}

/** Enable the controls that a page's script handles; until then, clicks would be lost. */
export function ready() {
  for (const item of document.querySelectorAll("[data-scripted]")) {
    item.disabled = false;
    item.removeAttribute("data-scripted");
  }
}

// Airflow shows the page in a frame that cannot open windows. The enclosing page, which has the same origin,
// follows the links that leave the frame.
const framed = window.parent !== window;
addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-leave]") : null;
  if (!link || !framed || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const outer = window.parent.document;
  const copy = outer.createElement("a");
  copy.href = link.href;
  copy.rel = "noopener";
  if (new URL(link.href).origin !== location.origin) copy.target = "_blank";
  outer.body.append(copy);
  copy.click();
  copy.remove();
});
if (framed) document.documentElement.classList.add("framed");
