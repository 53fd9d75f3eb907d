// The pages Submit and Edit: data, columns, models, the spec, and the submission.
// The document is the source of truth: the form changes it, and the TOML is written from it and parsed back into it.

import { api, ApiError, ready, toast } from "./app.js";
import { byId, bytes, debounced, h } from "./dom.js";
import { forgetTarget, showColumns } from "./submit_columns.js";
import { onEdit, setText, showProblems, text } from "./submit_editor.js";
import { showEstimate } from "./submit_estimate.js";
import { showForm } from "./submit_form.js";
import { showNextRuns, showSchedule } from "./submit_schedule.js";
import { Upload, follow, watchNames } from "./submit_send.js";

const HEAD_BYTES = 1 << 20;
const WHOLE_PARQUET_BYTES = 8 << 20;
const MAX_SPEC_BYTES = 256 * 1024;
const RETRY_MS = 3000;

const state = {
  file: null, // chosen from the disk
  stored: null, // {team, name, file} in S3
  schema: null,
  document: null,
  valid: false,
  catalogue: null,
  names: { team: "", name: "", ok: false, files: [], version: 0 },
  edited: byId("subject").dataset, // {team, name} of the job on the Edit page
  etag: null, // of its spec, so that nobody else's change is overwritten
  sending: false,
  estimating: false,
};
let latest = 0;

const columnNames = () => (state.schema ? state.schema.columns.map((column) => column.name) : []);

/** Let the server write or check the spec; ignore responses to outdated requests. */
async function request(path, body) {
  const current = ++latest;
  try {
    const response = await api(path, { method: "POST", json: { ...body, columns: columnNames() } });
    if (current === latest) return response;
  } catch (error) {
    if (current === latest) {
      state.valid = false;
      showProblems([{ message: error.message, hint: "", key: "" }]);
      update();
      if (!(error.problem?.status >= 400 && error.problem?.status < 500)) {
        await new Promise((done) => setTimeout(done, RETRY_MS));
        if (current === latest) return request(path, body);
      }
    }
  }
  return null;
}

/** Handle a change of the document by the form. */
async function formChanged() {
  const response = await request("/specs/toml", { document: state.document });
  if (!response) return;
  setText(response.toml);
  showResult(response);
}

/** Handle an edit of the TOML. */
async function textChanged() {
  const response = await request("/specs/check", { toml: text() });
  if (!response) return;
  if (response.document) {
    state.document = response.document;
    draw();
  }
  showResult(response);
}

function showResult(response) {
  state.valid = response.valid;
  showProblems(response.problems, response.gist);
  showNextRuns(response);
  update();
}

const formChangedSoon = debounced(formChanged, 150);

/** Redraw columns and form; keep the focus. */
function draw() {
  const focused = document.activeElement?.id;
  if (state.schema) showColumns(state, changed);
  if (state.catalogue && state.document) {
    byId("models").hidden = byId("operation").hidden = false;
    showForm(state, changed);
    showSchedule(state, changed);
  }
  if (focused && focused !== "toml") byId(focused)?.focus();
}

/** Handle a change by the form; `again` if the form itself must be redrawn. */
function changed(again = false) {
  if (again) draw();
  formChangedSoon();
}

/** Show what is still missing, and enable the button when nothing is. */
function update() {
  // The data of an existing job may be in folders; admission checks it.
  const data = state.file || state.stored || state.names.files.length || state.names.version;
  const missing = [];
  if (!text().trim()) missing.push("a spec");
  else if (!state.valid) missing.push("a spec without errors");
  if (!data) missing.push("data");
  if (!state.names.ok) missing.push("a team and a name");
  byId("missing").textContent = missing.length && !state.sending ? `Still needed: ${missing.join(", ")}.` : "";
  byId("submit").disabled = missing.length > 0 || state.sending;
  byId("estimate").disabled = byId("submit").disabled || state.estimating || !dataFile();
}

/** Return the file to estimate: chosen from the disk, or the name of one in the job's folder. */
function dataFile() {
  const { stored, names } = state;
  if (state.file) return state.file;
  return stored?.team === names.team && stored.name === names.name ? stored.file : null;
}

byId("estimate").addEventListener("click", async () => {
  const { team, name } = state.names;
  state.estimating = true;
  update();
  try {
    await showEstimate(`/drops/${encodeURIComponent(team)}/${encodeURIComponent(name)}`, text(), dataFile());
  } catch (error) {
    byId("estimated").replaceChildren(h("div", { class: "note bad" }, h("p", { text: "There is no estimate:" }), listed(error.problem ?? { detail: String(error.message) })));
  } finally {
    state.estimating = false;
    update();
  }
});

function note(kind, ...children) {
  byId("data-note").replaceChildren(h("div", { class: `note ${kind}` }, ...children));
}

function listed(problem) {
  const items = problem.problems ?? [];
  if (!items.length) return h("p", { text: problem.detail ?? String(problem) });
  return h("ul", {}, items.map((item) => {
    const place = item.line ? ` (line ${item.line})` : "";
    const found = item.found ? ` Found ${item.found}.` : "";
    return h("li", {}, `${item.message}${place}.${found}`, item.hint ? h("span", { class: "hint", text: ` ${item.hint}` }) : null);
  }));
}

async function useSchema(schema, what) {
  state.schema = schema;
  if (!state.edited.name || !state.document) {
    state.document = structuredClone(schema.document);
    if (!schema.certain) forgetTarget(state);
  }
  byId("schema").hidden = false;
  note("good", h("p", {}, h("strong", { text: schema.file }), ` ${what}`));
  keepToPath();
  draw();
  await formChanged();
}

/** If the job's folder holds other data files, set data.path in the spec. */
function keepToPath() {
  const file = state.file?.name ?? state.stored?.file;
  if (!state.document || !file) return;
  const others = state.names.files.filter((name) => name !== file);
  if (others.length && !state.document.data?.path) state.document.data = { ...state.document.data, path: file };
}

async function takeFile(file) {
  if (state.sending) return;
  if (file.name.toLowerCase().endsWith(".toml")) {
    if (file.size > MAX_SPEC_BYTES) return note("bad", h("p", { text: `${file.name} is too large to be a spec.` }));
    setText(await file.text());
    note("good", h("p", {}, h("strong", { text: file.name }), " is the spec."));
    return textChanged();
  }
  byId("data-note").replaceChildren(h("p", { class: "muted", text: `Reading ${file.name} …` }));
  const parquet = file.name.toLowerCase().endsWith(".parquet");
  const tail = parquet && file.size > WHOLE_PARQUET_BYTES;
  const part = tail ? file.slice(-HEAD_BYTES) : file.slice(0, parquet ? WHOLE_PARQUET_BYTES : HEAD_BYTES);
  try {
    const query = new URLSearchParams({ file: file.name, size: file.size });
    const schema = await api(`/sniff?${query}`, {
      method: "POST",
      body: part,
      headers: { "Content-Type": "application/octet-stream" },
    });
    Object.assign(state, { file, stored: null });
    if (!byId("name").value) {
      byId("name").value = slug(file.name);
      byId("name").dispatchEvent(new Event("input"));
    }
    await useSchema(schema, `(${bytes(file.size)}) is ready to submit.`);
  } catch (error) {
    note("bad", h("p", {}, h("strong", { text: file.name }), " cannot be used:"), listed(error.problem ?? error));
  }
  update();
}

const slug = (name) =>
  name.toLowerCase().replace(/\.[^.]*$/, "").replace(/[^a-z0-9_-]+/g, "-").replace(/^[-_]+|[-_]+$/g, "").slice(0, 63);

// ---- data -------------------------------------------------------------------------------------------------

const drop = byId("drop");
function takeChosen() {
  const [file] = byId("file").files;
  if (file) takeFile(file);
  byId("file").value = "";
}
byId("file").addEventListener("change", takeChosen);
takeChosen(); // a file that was chosen before this script ran
for (const kind of ["dragenter", "dragover"]) {
  addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    drop.classList.add("over");
  });
}
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) drop.classList.remove("over");
});
addEventListener("drop", async (event) => {
  if (!event.dataTransfer?.files.length) return;
  event.preventDefault();
  drop.classList.remove("over");
  // Data first: a spec that is dropped with it replaces the inferred one.
  const files = [...event.dataTransfer.files].sort((a, b) => a.name.endsWith(".toml") - b.name.endsWith(".toml"));
  for (const file of files) await takeFile(file);
});

byId("stored-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const box = byId("stored-files");
  const team = byId("stored-team").value.trim();
  if (!team) return;
  try {
    const { files } = await api(`/drops/${encodeURIComponent(team)}`);
    box.replaceChildren(
      files.length
        ? h("ul", { class: "files" }, files.map((found) =>
            h("li", {},
              h("button", { type: "button", onclick: () => takeStored(found), text: `${found.name}/${found.file}` }),
              h("span", { class: "hint", text: ` ${bytes(found.size)}, ${new Date(found.modified).toLocaleString()}` }),
            )))
        : h("p", { class: "muted", text: "There are no data files that you may use." }),
    );
  } catch (error) {
    box.replaceChildren(h("div", { class: "note bad" }, h("p", { text: error.message })));
  }
});

async function takeStored(found) {
  byId("data-note").replaceChildren(h("p", { class: "muted", text: `Reading ${found.file} …` }));
  try {
    const path = `/drops/${encodeURIComponent(found.team)}/${encodeURIComponent(found.name)}/sniff`;
    const schema = await api(`${path}?${new URLSearchParams({ file: found.file })}`);
    Object.assign(state, { file: null, stored: found });
    byId("team").value = found.team;
    byId("name").value = found.name;
    byId("name").dispatchEvent(new Event("input"));
    await useSchema(schema, `(${bytes(found.size)}) is in S3.`);
  } catch (error) {
    note("bad", h("p", {}, h("strong", { text: found.file }), " cannot be used:"), listed(error.problem ?? error));
  }
  update();
}

// ---- names and submission -----------------------------------------------------------------------------------

const checkNames = watchNames((names) => {
  state.names = names;
  const before = state.document?.data?.path;
  keepToPath();
  if (state.document?.data?.path !== before) formChanged();
  update();
});

byId("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (byId("submit").disabled) return;
  const { team, name } = state.names;
  const path = `/drops/${encodeURIComponent(team)}/${encodeURIComponent(name)}`;
  const upload = state.file ? new Upload(path, state.file) : null;
  state.sending = true;
  update();
  byId("answer").replaceChildren();
  byId("cancel").hidden = !upload;
  byId("cancel").onclick = () => upload.cancel();
  try {
    if (upload) await upload.run();
    byId("cancel").hidden = true;
    const etag = team === state.edited.team && name === state.edited.name ? state.etag : null;
    const submitted = await api(`${path}/spec`, { method: "PUT", json: { toml: text(), etag } });
    if (etag) state.etag = submitted.etag;
    await follow(path, submitted.fingerprint, { team, name });
    checkNames();
  } catch (error) {
    if (error.name === "AbortError") toast("The upload was cancelled; nothing was submitted.", "bad");
    else {
      const words = error instanceof ApiError ? listed(error.problem) : h("p", { text: String(error.message) });
      byId("answer").replaceChildren(h("div", { class: "note bad" }, h("p", { text: "The submission failed:" }), words));
    }
  } finally {
    state.sending = false;
    byId("cancel").hidden = true;
    byId("progress").hidden = true;
    update();
  }
});
addEventListener("beforeunload", (event) => {
  if (state.sending) event.preventDefault();
});

// ---- the spec ---------------------------------------------------------------------------------------------

onEdit(debounced(textChanged, 300), update);

/** Show the submitted spec of a job, and its data if that is one file. */
async function openJob({ team, name }) {
  const job = `${encodeURIComponent(team)}/${encodeURIComponent(name)}`;
  const spec = await api(`/jobs/${job}/spec`);
  state.etag = spec.etag;
  setText(spec.toml);
  await textChanged();
  const { files } = await api(`/drops/${job}`);
  const file = state.document?.data?.path ?? (files.length === 1 ? files[0] : "");
  if (!files.includes(file)) return;
  state.schema = await api(`/drops/${job}/sniff?${new URLSearchParams({ file })}`);
  state.stored = { team, name, file };
  byId("schema").hidden = false;
  note("good", h("p", {}, h("strong", { text: file }), " is the job's data. Choose another file to replace it."));
  draw();
  await textChanged();
}

ready();
while (!state.catalogue) {
  try {
    state.catalogue = await api("/catalogue");
  } catch (error) {
    toast(error.message, "bad");
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}
draw();
if (state.edited.name) {
  checkNames();
  openJob(state.edited).catch((error) => note("bad", h("p", { text: "The job's data cannot be shown:" }), listed(error.problem ?? error)));
}
