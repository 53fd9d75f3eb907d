// The platform's page: refreshed by itself; the doctor is asked once the rest is there.
import { api, poll, ready } from "./app.js";

const live = document.getElementById("live");
const body = document.getElementById("doctor");
const button = document.getElementById("examine");
const KINDS = { ok: "good", missing: "warn", broken: "bad" };

poll(async () => {
  const url = new URL(location.href);
  url.searchParams.set("part", "live");
  const answer = await fetch(url, { credentials: "same-origin", redirect: "error" }).catch(() => null);
  if (answer?.ok) live.innerHTML = await answer.text();
}, 5);

function cell(tag, text, className) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

async function examine(again) {
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
        const finding = cell("td", check.message, "wrap");
        if (check.hint) finding.append(cell("span", check.hint, "message"));
        row.append(name, state, finding);
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

ready();
if (button) {
  button.addEventListener("click", () => examine(true));
  examine(false);
}
