// A job's scored files: check a file, upload it, and follow the table.
import { api, ApiError, poll, ready, toast, unexplained } from "./app.js";
import { handleDialogs } from "./dialogs.js";
import { byId, bytes, h, put, write } from "./dom.js";
import { beginningOf, formatOf, mustBeUploaded } from "./sample.js";

const { team, name } = byId("job").dataset;
const path = `/scoring/${encodeURIComponent(team)}/${encodeURIComponent(name)}`;

const form = byId("score-file");
const box = byId("sent");
let latest = 0; // number of the latest check

form?.elements.file.addEventListener("change", check);
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  const [file] = form.elements.file.files;
  button.disabled = true;
  try {
    if (await check()) {
      await send(file);
      form.reset();
      put(box, h("p", { class: "note good", text: `${file.name} is uploaded. The table shows its progress; you can leave this page.` }));
      await refresh();
    }
  } catch (error) {
    problem(`${file.name} was not uploaded:`, error);
  }
  button.disabled = false;
});

byId("files").addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-again]");
  if (!button) return;
  button.disabled = true;
  try {
    await api(`${path}/again?${new URLSearchParams({ file: button.dataset.again })}`, { method: "POST" });
    await refresh();
  } catch (error) {
    button.disabled = false;
    problem(`${button.dataset.again} was not scored again:`, error);
  }
});

handleDialogs(
  {
    async discard(data, form) {
      const { file } = form.closest("dialog").dataset;
      await api(`${path}/file?${new URLSearchParams({ file })}`, { method: "DELETE" });
      toast(`Deleted: ${file}.`);
    },
  },
  {
    discard(dialog, { dataset }) {
      dialog.dataset.file = dataset.file;
      write(dialog.querySelector("h2 span"), dataset.file);
    },
  },
);

/** Have the beginning of the chosen file checked, show the result, and return whether it can be scored. */
async function check() {
  const [file] = form.elements.file.files;
  const current = ++latest;
  if (!file) return put(box);
  if (!formatOf(file.name)?.text && mustBeUploaded(file)) {
    put(box, h("p", { class: "muted", text: `The columns of ${file.name} are checked after the upload.` }));
    return true;
  }
  put(box, h("p", { class: "muted", text: `Checking the columns of ${file.name} …` }));
  const query = new URLSearchParams({ file: file.name, size: file.size });
  try {
    const found = await api(`${path}/check?${query}`, { method: "POST", body: beginningOf(file), headers: { "Content-Type": "application/octet-stream" } });
    if (current !== latest) return false;
    const others = found.others.length;
    const copied = others ? ` ${others === 1 ? "One other column is" : `${others} other columns are`} copied.` : "";
    put(box, h("p", { class: "note good", text: `${file.name} (${bytes(file.size)}) has all ${found.columns.length} columns of the model.${copied}` }));
    return true;
  } catch (error) {
    if (current === latest) problem(`${file.name} cannot be scored:`, error);
    return false;
  }
}

/** Upload a file; `fetch` does not report upload progress. */
function send(file) {
  const bar = h("progress", { max: file.size, value: 0, "aria-label": `Upload of ${file.name}` });
  const text = h("p", { class: "muted", text: `Uploading ${file.name} …` });
  put(box, bar, text);
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `${document.body.dataset.base}/api/v1${path}/file?${new URLSearchParams({ file: file.name })}`);
    request.responseType = "json";
    request.upload.addEventListener("progress", ({ loaded }) => {
      bar.value = loaded;
      write(text, `Uploading ${file.name}: ${bytes(loaded)} of ${bytes(file.size)}`);
    });
    request.addEventListener("load", () =>
      request.status < 300 ? done() : fail(new ApiError(request.response ?? { status: request.status, detail: unexplained(request.status) })));
    request.addEventListener("error", () => fail(new ApiError({ status: 0, detail: "The connection was lost during the upload." })));
    request.send(file);
  });
}

function problem(title, error) {
  const issues = error.problem?.problems ?? [];
  put(box, h("div", { class: "note bad" }, h("p", { text: title }),
    h("ul", {}, (issues.length ? issues : [{ message: error.message }]).map(({ message, line, hint }) =>
      h("li", { text: `${message}${line ? `, line ${line}` : ""}${hint ? `; ${hint}` : ""}` })))));
}

const states = () => new Map([...document.querySelectorAll("#files tr[data-file]")].map((row) => [row.dataset.file, row.dataset.state]));

/** Replace the table if something has changed, and announce files that are done. */
async function refresh() {
  const url = new URL(location.href);
  url.searchParams.set("part", "table");
  const response = await fetch(url, { credentials: "same-origin", redirect: "error" });
  if (!response.ok) return;
  const table = byId("files");
  const fresh = document.createElement("div");
  fresh.innerHTML = await response.text();
  if (signature(fresh) === signature(table)) return;
  const before = states();
  const focused = table.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
  const scrolled = table.querySelector(".scroll").scrollLeft;
  table.replaceChildren(...fresh.childNodes);
  ready();
  table.querySelector(".scroll").scrollLeft = scrolled;
  if (focused) [...table.querySelectorAll("[aria-label]")].find((item) => item.getAttribute("aria-label") === focused)?.focus();
  for (const [file, state] of states()) {
    if (before.has(file) && before.get(file) !== state && ["scored", "failed"].includes(state)) toast(`${file}: ${state}.`, state === "failed" ? "bad" : "good");
  }
}

/** Return the content without what changes by itself: the texts of times, and whether buttons can be used. */
function signature(root) {
  const copy = root.cloneNode(true);
  for (const time of copy.querySelectorAll("time")) time.textContent = "";
  for (const button of copy.querySelectorAll("button")) for (const own of ["disabled", "data-scripted"]) button.removeAttribute(own);
  return copy.innerHTML.trim();
}

poll(refresh, 1.5);
ready();
