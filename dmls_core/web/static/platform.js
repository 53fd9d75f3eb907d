// The Platform page: refreshes itself, and runs the checks of dmls doctor once it is loaded.
import { api, poll, ready } from "./app.js";
import { write } from "./dom.js";

const live = document.getElementById("live");
const body = document.getElementById("checks");
const button = document.getElementById("run-checks");
const KINDS = { ok: "good", missing: "warn", broken: "bad" };

poll(async () => {
  const url = new URL(location.href);
  url.searchParams.set("part", "live");
  const response = await fetch(url, { credentials: "same-origin", redirect: "error" }).catch(() => null);
  if (response?.ok) live.innerHTML = await response.text();
}, 5);

function cell(tag, text, className) {
  const element = document.createElement(tag);
  write(element, text);
  if (className) element.className = className;
  return element;
}

async function runChecks(again) {
  button.disabled = true;
  try {
    const checks = await api(`/platform/doctor${again ? "?again=true" : ""}`);
    body.replaceChildren(
      ...checks.map((check) => {
        const row = document.createElement("tr");
        const name = cell("th", check.name);
        name.scope = "row";
        const state = document.createElement("td");
        state.append(cell("span", check.state, `badge ${KINDS[check.state] ?? ""}`));
        const result = cell("td", check.message, "wrap");
        if (check.hint) result.append(cell("span", check.hint, "message"));
        row.append(name, state, result);
        return row;
      }),
    );
  } catch (error) {
    const row = document.createElement("tr");
    const only = cell("td", error.message, "empty");
    only.colSpan = 3;
    row.append(only);
    body.replaceChildren(row);
  } finally {
    button.disabled = false;
  }
}

document.getElementById("capacity-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const target = document.getElementById("capacity");
  const submit = event.target.querySelector("button");
  submit.disabled = true;
  write(target, "Reading the results of the finished runs…");
  const query = new URLSearchParams(new FormData(event.target));
  const options = { credentials: "same-origin", redirect: "error" };
  const response = await fetch(`${location.pathname}/capacity?${query}`, options).catch(() => null);
  if (response?.ok) target.innerHTML = await response.text();
  else write(target, "Could not compute the plan: the server did not respond. Try again.");
  submit.disabled = false;
});

ready();
if (button) {
  button.addEventListener("click", () => runChecks(true));
  runChecks(false);
}
