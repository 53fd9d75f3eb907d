// What every page shares: calls to the API, short messages, links that lead out of Airflow's frame.

const BASE = document.body.dataset.base;

/** Error of a call: `problem` is what the API answered (RFC 9457). */
export class ApiError extends Error {
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

/** Call the API and return its JSON; `path` starts below /api/v1. */
export async function api(path, options = {}) {
  const request = { credentials: "same-origin", ...options };
  if (options.json !== undefined) {
    request.body = JSON.stringify(options.json);
    request.headers = { "Content-Type": "application/json", ...options.headers };
  }
  let answer;
  try {
    answer = await fetch(`${BASE}/api/v1${path}`, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ status: 0, title: "No answer", detail: "Airflow's API server does not answer." });
  }
  if (answer.status === 401) {
    location.reload(); // the page itself leads to the login and back
    return new Promise(() => {});
  }
  const body = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (answer.ok) return body;
  throw new ApiError(body ?? { status: answer.status, title: answer.statusText, detail: answer.statusText });
}

/** Show a short message; `kind` is "good" or "bad". Screen readers read it out. */
export function toast(message, kind = "good") {
  const box = document.createElement("p");
  box.className = `toast ${kind}`;
  box.textContent = message;
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 12000 : 6000);
}

/** Call `work` now and every `seconds` while the page is in sight; `work` returns false to end it. */
export function poll(work, seconds) {
  const turn = async () => {
    try {
      if (!document.hidden && (await work()) === false) return;
    } catch (error) {
      console.warn(error); // an answer that broke off: the next turn asks again
    }
    setTimeout(turn, seconds * 1000);
  };
  setTimeout(turn, seconds * 1000);
}

/** Enable what a page's script listens to: before that, what is clicked would be lost. */
export function ready() {
  for (const item of document.querySelectorAll("[data-scripted]")) {
    item.disabled = false;
    item.removeAttribute("data-scripted");
  }
}

// Airflow shows the page in a frame that may open no windows. A link that leaves it is followed by the page
// around it, which is of the same origin.
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
