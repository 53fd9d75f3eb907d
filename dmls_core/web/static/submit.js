// The pages Submit and Edit: data, columns, models, the spec, and the submission.
// The document is the source of truth: the form changes it, and the TOML is written from it and parsed back into it.

import { api, ApiError, ready, toast } from "./app.js";
import { byId, bytes, debounced, h, write } from "./dom.js";
import { mustBeUploaded, sampleOf } from "./sample.js";
import { forgetTarget, setRole, showColumns } from "./submit_columns.js";
import { onEdit, setText, showProblems, text } from "./submit_editor.js";
import { showEstimate } from "./submit_estimate.js";
import { showForm } from "./submit_form.js";
import { readingOf, sameReading, setReading, showReading } from "./submit_reading.js";
import { showNextRuns, showSchedule } from "./submit_schedule.js";
import { Upload, follow, watchNames } from "./submit_send.js";

const MAX_SPEC_BYTES = 256 * 1024;
const RETRY_MS = 3000;

const state = {
  file: null, // chosen from the disk
  stored: null, // {team, name, file} in S3
  uploaded: null, // {team, name, file} of a file from the disk that is in S3 already
  schema: null,
  source: null, // whose columns were inferred: {file} or {stored}
  readable: true, // whether it can be read as the form says
  document: null,
  valid: false,
  catalogue: null,
  names: { team: "", name: "", ok: false, files: [], version: 0 },
  edited: byId("subject").dataset, // {team, name} of the job on the Edit page
  etag: null, // of its spec, so that nobody else's change is overwritten
  sending: false,
  estimating: false,
  byForm: false, // whether the latest change was one of the form, so that the spec may not have it yet
};
let latest = 0;
let reads = 0;

const dateColumns = () => (state.schema?.columns ?? []).filter(({ kind }) => kind === "date").map(({ name }) => name).slice(0, 3);
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
  state.byForm = true;
  const response = await request("/specs/toml", { document: state.document });
  if (!response) return;
  setText(response.toml);
  showResult(response);
}

/** Handle an edit of the TOML. */
async function textChanged() {
  state.byForm = false;
  const response = await request("/specs/check", { toml: text() });
  if (!response) return;
  if (response.document) {
    state.document = response.document;
    draw();
  }
  showResult(response);
  const keys = readingOf(state.document);
  if (response.document && state.source && !sameReading(state.source.keys, keys)) await reread(keys, true);
}

function showResult(response) {
  state.valid = response.valid;
  showProblems(response.problems, response.gist);
  showNextRuns(response, dateColumns(), (name) => {
    setRole(state, name, "time");
    state.document.data = { window: "all", ...state.document.data }; // one table, from which each run reads what is past
    changed(true);
    byId("schedule").focus();
  });
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
  state.byForm = true;
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
  if (!state.readable) missing.push("data that can be read");
  if (!state.names.ok) missing.push("a team and a name");
  write(byId("missing"), missing.length && !state.sending ? `Still needed: ${missing.join(", ")}.` : "");
  byId("submit").disabled = missing.length > 0 || state.sending;
  if (byId("upload-first")) {
    byId("upload-first").disabled = !state.names.ok || state.sending;
    write(byId("upload-hint"), state.names.version ? `${state.names.team}/${state.names.name} exists: until you submit, its current spec applies to the file.` : "");
  }
  byId("estimate").disabled = byId("submit").disabled || state.estimating || !dataFile();
}

/** Return the file to estimate: chosen from the disk, or the name of one in the job's folder. */
function dataFile() {
  const { stored, names } = state;
  if (state.file) return state.file;
  return stored?.team === names.team && stored.name === names.name ? stored.file : null;
}

byId("estimate").addEventListener("click", async () => {
  state.estimating = true;
  update();
  try {
    await showEstimate(dropPath(state.names), text(), dataFile());
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
    const place = item.line ? ` (line ${item.line}${item.key ? `, ${item.key}` : ""})` : "";
    const found = item.found ? ` Found ${item.found}.` : "";
    const what = item.key && !item.line ? `${item.key}: ` : "";
    return h("li", {}, `${what}${item.message}${place}.${found}`, item.hint ? h("span", { class: "hint", text: ` ${item.hint}` }) : null);
  }));
}

async function useSchema(schema, what = null) {
  const before = columnNames();
  const same = before.length > 0 && before.join("\0") === schema.columns.map((column) => column.name).join("\0");
  state.schema = schema;
  if (state.document && (state.edited.name || (same && what === null))) setReading(state.document, schema.data);
  else {
    state.document = structuredClone(schema.document);
    if (!schema.certain) forgetTarget(state);
  }
  byId("schema").hidden = false;
  if (what !== null) note("good", h("p", {}, h("strong", { text: schema.file }), ` ${what}`));
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

/**
 * Let the server infer the columns of a file; without `keys`, it detects how the file is written. Null if another
 * file, or the same one with other keys, is being read since.
 */
async function infer(source, keys = null) {
  const { file, stored } = source;
  const turn = ++reads;
  Object.assign(source, { keys: keys ?? {} });
  try {
    const query = new URLSearchParams(file ? { file: file.name, size: file.size } : { file: stored.file });
    if (keys) query.set("data", JSON.stringify(keys));
    const path = file ? "/sniff" : `/drops/${encodeURIComponent(stored.team)}/${encodeURIComponent(stored.name)}/sniff`;
    const body = file && { method: "POST", body: sampleOf(file), headers: { "Content-Type": "application/octet-stream" } };
    const schema = await api(`${path}?${query}`, body ?? {});
    if (turn !== reads) return null;
    Object.assign(source, { keys: keys ?? schema.data, sheets: schema.sheets, detected: keys ? source.detected : Object.keys(schema.data) });
    state.readable = true;
    return schema;
  } catch (error) {
    if (turn !== reads) return null;
    state.readable = false;
    throw error;
  } finally {
    if (turn === reads) {
      state.source = source;
      byId("reading").open ||= !state.readable || source.detected?.length > 0;
      drawReading();
    }
  }
}

const drawReading = () => showReading({ ...state.source, file: state.source.file?.name ?? state.source.stored.file }, reread);

/** Read the file again as the user says it is written, in the form or in the spec. */
async function reread(keys, typed = false) {
  const { source } = state;
  source.keys = keys;
  drawReading(); // a further change adds to this one
  let schema;
  try {
    schema = await infer(source, keys);
  } catch (error) {
    note("bad", h("p", {}, h("strong", { text: source.file?.name ?? source.stored.file }), " cannot be read so:"), listed(error.problem ?? error));
    return update();
  }
  if (!schema) return;
  Object.assign(state, { file: source.file ?? null, stored: source.stored ?? null });
  note("good", h("p", {}, h("strong", { text: schema.file }), ` was read again: ${schema.columns.length} columns.`));
  if (typed) {
    state.schema = schema;
    draw();
    await textChanged();
  } else await useSchema(schema);
  update();
}

async function takeFile(file) {
  if (state.sending) return;
  if (file.name.toLowerCase().endsWith(".toml")) {
    if (file.size > MAX_SPEC_BYTES) return note("bad", h("p", { text: `${file.name} is too large to be a spec.` }));
    setText(await file.text());
    note("good", h("p", {}, h("strong", { text: file.name }), " is the spec."));
    return textChanged();
  }
  if (mustBeUploaded(file)) return offerUpload(file);
  byId("data-note").replaceChildren(h("p", { class: "muted", text: `Reading ${file.name} …` }));
  try {
    const schema = await infer({ file });
    if (!schema) return;
    Object.assign(state, { file, stored: null, uploaded: null });
    proposeName(file);
    await useSchema(schema, `(${bytes(file.size)}) is ready to submit.`);
  } catch (error) {
    note("bad", h("p", {}, h("strong", { text: file.name }), " cannot be used:"), listed(error.problem ?? error));
  }
  update();
}

function proposeName(file) {
  if (byId("name").value) return;
  byId("name").value = slug(file.name);
  byId("name").dispatchEvent(new Event("input"));
}

/** Offer to upload a large file that is not text: its columns are inferred in S3. */
function offerUpload(file) {
  reads += 1; // what is being read is of another file
  proposeName(file);
  note("", h("p", {}, h("strong", { text: file.name }), ` (${bytes(file.size)}) is uploaded before its columns are inferred. Choose a team and a name of the job, then upload it.`),
    h("p", { class: "hint", id: "upload-hint" }),
    h("p", {}, h("button", { type: "button", class: "primary", id: "upload-first", text: `Upload ${file.name}`, onclick: () => uploadFirst(file) })));
  update();
}

async function uploadFirst(file) {
  const { team, name } = state.names;
  try {
    await send(new Upload(dropPath(state.names), file));
    await takeStored({ team, name, file: file.name, size: file.size });
    state.uploaded = { team, name, file };
  } catch (error) {
    if (error.name === "AbortError") toast("The upload was cancelled.", "bad");
    else note("bad", h("p", {}, h("strong", { text: file.name }), " was not uploaded:"), listed(error.problem ?? error));
  }
}

/** Run an upload, which the user can cancel, and keep the form from sending anything else meanwhile. */
async function send(upload) {
  state.sending = true;
  update();
  byId("cancel").hidden = false;
  byId("cancel").onclick = () => upload.cancel();
  try {
    await upload.run();
  } finally {
    state.sending = false;
    byId("cancel").hidden = byId("progress").hidden = true;
    update();
  }
}

const dropPath = ({ team, name }) => `/drops/${encodeURIComponent(team)}/${encodeURIComponent(name)}`;

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
    const schema = await infer({ stored: found });
    if (!schema) return;
    Object.assign(state, { file: null, stored: found, uploaded: null });
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

/** Throw if the spec of the edited job is not the one that was opened. */
async function checkUnchanged(etag) {
  const { team, name } = state.edited;
  const now = await api(`/jobs/${encodeURIComponent(team)}/${encodeURIComponent(name)}/spec`);
  if (now.etag !== etag) throw new ApiError({ status: 409, detail: `The spec of ${team}/${name} has changed since you opened it: open it again. Nothing was uploaded.` });
}

byId("send").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (byId("submit").disabled) return;
  const { team, name } = state.names;
  const path = dropPath(state.names);
  const { uploaded } = state;
  const moved = uploaded && (uploaded.team !== team || uploaded.name !== name); // since then, the job got another name
  const file = state.file ?? (moved ? uploaded.file : null);
  const upload = file ? new Upload(path, file) : null;
  byId("answer").replaceChildren();
  try {
    const etag = team === state.edited.team && name === state.edited.name ? state.etag : null;
    if (etag && upload) await checkUnchanged(etag); // before the new data replaces that of the changed spec
    if (upload) await send(upload);
    state.sending = true;
    update();
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
  state.stored = { team, name, file };
  try {
    state.schema = (await infer({ stored: state.stored }, readingOf(state.document))) ?? state.schema;
  } finally {
    state.readable = true; // it was accepted; a large file cannot be shown
  }
  byId("schema").hidden = false;
  note("good", h("p", {}, h("strong", { text: file }), " is the job's data. Choose another file to replace it."));
  draw();
  await (state.byForm ? formChanged() : textChanged()); // the user may have begun to edit
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
