// A job's pages: refresh during a run, the end of the log, the buttons and their dialogs.
import { changedHyperparameters, showHyperparameters } from "./again.js";
import { api, poll, ready, toast } from "./app.js";
import { handleDialogs } from "./dialogs.js";
import { write } from "./dom.js";
import { visible } from "./visible_text.js";

const head = document.getElementById("job");
const path = `/jobs/${encodeURIComponent(head.dataset.team)}/${encodeURIComponent(head.dataset.name)}`;

// --- refresh during a run ----------------------------------------------------------------------------
const live = document.querySelector("[data-live]");

async function refresh() {
  const url = new URL(location.href);
  url.searchParams.set("part", "live");
  const response = await fetch(url, { credentials: "same-origin", redirect: "error" }).catch(() => null);
  if (!response?.ok) return;
  const fresh = document.createElement("div");
  fresh.innerHTML = await response.text();
  if (fresh.querySelector("[data-finished]") && !live.querySelector("[data-finished]")) return location.reload();
  const before = live.querySelector("#log");
  const after = fresh.querySelector("#log");
  if (before && after && before.dataset.run === after.dataset.run) {
    after.replaceWith(before); // keeps its text, its scroll position, and whether it is open
  }
  const positions = [...live.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  if (signature(live) !== signature(fresh)) {
    const focused = document.activeElement?.closest?.("[data-live]") === live ? document.activeElement.textContent : null;
    live.replaceChildren(...fresh.childNodes);
    document.dispatchEvent(new Event("chartschanged"));
    [...live.querySelectorAll(".scroll")].forEach((box, i) => positions[i] && ([box.scrollLeft, box.scrollTop] = positions[i]));
    if (focused) [...live.querySelectorAll("a, summary, [tabindex]")].find((item) => item.textContent === focused)?.focus();
  } else if (before) {
    live.append(before);
  }
  await readLog();
  await refreshState();
}

/** Return the content that shows whether anything has changed, without the log, which is refreshed on its own, and drawn charts. */
function signature(root) {
  const copy = root.cloneNode(true);
  copy.querySelector("#log")?.remove();
  for (const drawing of copy.querySelectorAll(".drawing")) drawing.remove();
  for (const time of copy.querySelectorAll("time")) time.textContent = "";
  return copy.innerHTML.trim();
}

const shownState = head.dataset.state; // of the page; the state may change before the first request
let posting = 0;

/** Reload the page when the job's state changes, so that its buttons fit, unless the user is about to act. */
async function refreshState() {
  const now = await api(path).catch(() => null);
  if (!now) return;
  const state = `${now.state} ${now.paused} ${now.served}`;
  if (shownState !== state && !posting && !document.querySelector("dialog[open]")) location.reload();
}

async function readLog() {
  const log = document.getElementById("log");
  if (!log?.open) return;
  const box = log.querySelector("pre");
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  try {
    const lines = await api(`${path}/runs/${encodeURIComponent(log.dataset.run)}/log?lines=300`);
    const text = visible(lines.join("\n") || "No output yet.");
    if (box.textContent !== text) {
      write(box, text);
      if (atEnd) box.scrollTop = box.scrollHeight;
    }
  } catch (error) {
    write(box, error.message);
  }
}

if (live) {
  document.addEventListener("toggle", readLog, true);
  readLog();
  refreshState();
  poll(refresh, 2.5);
}

// --- the buttons -------------------------------------------------------------------------------------
async function post(name, json) {
  posting += 1;
  try {
    toast((await api(`${path}/${name}`, { method: "POST", json })).message);
  } finally {
    posting -= 1;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-command]");
  if (!button) return;
  button.disabled = true;
  try {
    const name = button.dataset.command;
    await post(name, name === "pause" ? { paused: button.dataset.paused !== "true" } : undefined);
    setTimeout(() => location.reload(), 900);
  } catch (error) {
    toast(error.message, "bad");
    button.disabled = false;
  }
});

const forms = {
  async again(data) {
    const hyperparameters = changedHyperparameters();
    const changes = Object.keys(hyperparameters).length ? { hyperparameters } : {};
    if (data.get("n_trials")) changes.n_trials = Number(data.get("n_trials"));
    if (data.get("seed")) changes.seed = Number(data.get("seed"));
    if (data.get("deploy")) changes.deploy = true;
    await post("runs", { changes });
  },
  async back(data) {
    await post("rollback", { version: Number(data.get("version")) });
  },
  async stop() {
    await post("undeploy");
  },
  async retire() {
    await post("retire");
  },
};

const openers = {
  async again(dialog) {
    await showHyperparameters(dialog.querySelector("[data-models]"));
  },
  async back(dialog) {
    const versions = await api(`${path}/served`);
    const earlier = versions.kept.filter((version) => version !== versions.serving).reverse();
    const select = dialog.querySelector("select");
    select.replaceChildren(...earlier.map((version) => new Option(`version ${version}`, version)));
    dialog.querySelector("button[value=go]").disabled = earlier.length === 0;
    if (!earlier.length) select.append(new Option("No other version can be served."));
  },
};

handleDialogs(forms, openers);
ready();
