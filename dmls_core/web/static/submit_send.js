// Submit: the names, the upload in parts, and the status of the submission.

import { api, ApiError, unexplained } from "./app.js";
import { byId, bytes, debounced, h, write } from "./dom.js";

const BASE = document.body.dataset.base;
const NAME = /^[a-z0-9][a-z0-9_-]{0,62}$/;
const ATTEMPTS = 4;
const RETRY_MS = 3000;
const ENDED = new Set(["rejected", "accepted", "running", "awaiting approval", "trained", "deployed", "stopped", "failed"]);
const KINDS = { rejected: "bad", failed: "bad", waiting: "warn", stopped: "warn", accepted: "good", trained: "good", deployed: "good", running: "busy", "awaiting approval": "wait" };

/** Check team and name as the user types; call `changed` with the result. Return a function that checks again. */
export function watchNames(changed) {
  const team = byId("team");
  const name = byId("name");
  const note = byId("names-note");
  let latest = 0;
  team.value ||= localStorage.getItem("dmls.team") ?? team.dataset.default;

  const check = async () => {
    const current = ++latest;
    const names = { team: team.value, name: name.value, ok: false, files: [], version: 0 };
    try {
      const found = await api(`/drops/${encodeURIComponent(names.team)}/${encodeURIComponent(names.name)}`);
      if (current !== latest) return;
      Object.assign(names, { ok: true, files: found.files, version: found.version });
      localStorage.setItem("dmls.team", names.team);
      write(note, found.version
        ? `${names.team}/${names.name} is an existing job: this submission becomes version ${found.version + 1} if its spec or data differ.`
        : `${names.team}/${names.name} is a new job.`);
    } catch (error) {
      if (current !== latest) return;
      const refused = error.problem?.status >= 400 && error.problem?.status < 500;
      write(note, error.problem?.status === 403 ? `You may not submit for ${names.team}/${names.name}.` : error.message);
      if (!refused) setTimeout(() => current === latest && check(), RETRY_MS);
    }
    changed(names);
  };
  const soon = debounced(check, 250);
  const input = () => {
    latest += 1;
    const wrong = [team, name].filter((field) => field.value && !NAME.test(field.value));
    for (const field of [team, name]) field.setAttribute("aria-invalid", String(wrong.includes(field)));
    changed({ team: team.value, name: name.value, ok: false, files: [] });
    if (wrong.length) write(note, "Lowercase letters, digits, - and _; starts with a letter or digit; at most 63 characters.");
    else if (team.value && name.value) soon();
    else write(note, "Lowercase letters, digits, - and _.");
  };
  team.addEventListener("input", input);
  name.addEventListener("input", input);
  return check;
}

/** Uploads a file to S3 in parts, each in a request of its own, with retries. */
export class Upload {
  constructor(path, file) {
    this.path = path;
    this.file = file;
    this.query = new URLSearchParams({ file: file.name, size: file.size });
    this.request = null;
    this.cancelled = false;
  }

  async run() {
    byId("progress").hidden = false;
    byId("progress").scrollIntoView({ block: "nearest" });
    this.show(0);
    const { upload, part_bytes: size } = await api(`${this.path}/uploads?${this.query}`, { method: "POST" });
    const at = `${this.path}/uploads/${encodeURIComponent(upload)}`;
    try {
      for (let number = 1, start = 0; start < this.file.size; number += 1, start += size) {
        await this.part(`${at}/${number}?${this.query}`, this.file.slice(start, start + size), start);
      }
      await api(`${at}/finish?${this.query}`, { method: "POST" });
    } catch (error) {
      api(`${at}?${this.query}`, { method: "DELETE" }).catch(() => {});
      throw error;
    }
  }

  cancel() {
    this.cancelled = true;
    this.request?.abort();
  }

  async part(path, content, start) {
    for (let attempt = 1; ; attempt += 1) {
      if (this.cancelled) throw new DOMException("cancelled", "AbortError");
      try {
        return await this.put(path, content, start);
      } catch (error) {
        const hopeless = error.problem?.status >= 400 && error.problem?.status < 500;
        if (error.name === "AbortError" || hopeless || attempt === ATTEMPTS) throw error;
        await new Promise((done) => setTimeout(done, 500 * 2 ** attempt));
      }
    }
  }

  /** Send a part; `fetch` does not report upload progress. */
  put(path, content, start) {
    return new Promise((done, fail) => {
      const request = new XMLHttpRequest();
      this.request = request;
      request.open("PUT", `${BASE}/api/v1${path}`);
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.upload.addEventListener("progress", (event) => this.show(start + event.loaded));
      request.addEventListener("load", () => {
        if (request.status < 300) return done();
        let problem = { status: request.status, detail: unexplained(request.status) };
        try {
          problem = JSON.parse(request.responseText);
        } catch {
          // The response is not from DMLS, but from a proxy.
        }
        return fail(new ApiError(problem));
      });
      request.addEventListener("error", () => fail(new ApiError({ status: 0, detail: "The connection was lost during the upload." })));
      request.addEventListener("abort", () => fail(new DOMException("cancelled", "AbortError")));
      request.send(content);
    });
  }

  show(sent) {
    const now = Math.min(sent, this.file.size);
    byId("bar").value = (100 * now) / this.file.size;
    write(byId("bar-text"), `Uploading ${this.file.name}: ${bytes(now)} of ${bytes(this.file.size)}`);
  }
}

/** Show the status of the submission until it is accepted or rejected. */
export async function follow(path, fingerprint, job) {
  byId("progress").hidden = true;
  const box = byId("answer");
  const begun = Date.now();
  box.replaceChildren(h("p", { class: "muted", text: "Submitted. Waiting for the result …" }));
  for (;;) {
    let found = null;
    try {
      found = await api(`${path}?${new URLSearchParams({ fingerprint })}`);
    } catch (error) {
      if (error.problem?.status >= 400 && error.problem?.status < 500) throw error;
      box.replaceChildren(h("p", { class: "muted", text: `${error.message} Retrying …` }));
    }
    if (found?.answered) {
      show(box, found.status, job);
      box.scrollIntoView({ block: "nearest" });
      if (ENDED.has(found.status.state)) return;
    } else if (found && Date.now() - begun > 60_000) {
      box.replaceChildren(h("div", { class: "note warn" }, h("p", {
        text: "There is no result yet. Check whether the DAG dmls.intake is paused. This page keeps waiting.",
      })));
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

function show(box, status, { team, name }) {
  const kind = KINDS[status.state] ?? "";
  const several = status.errors.length > 1;
  box.replaceChildren(
    h("div", { class: `note ${kind === "busy" || kind === "wait" ? "good" : kind}` },
      h("p", {}, h("span", { class: `badge ${kind}`, id: "state", text: status.state }), ` ${several ? status.message.split("; the first: ")[0] : status.message}`),
      several
        ? h("ul", {}, status.errors.map((error) =>
            h("li", { text: [error.file && error.line ? `${error.file}, line ${error.line}: ` : "", error.key ? `${error.key}: ` : "", error.message, error.hint ? ` (${error.hint})` : ""].join("") })))
        : null,
      status.notes.length ? h("ul", { class: "data-notes" }, status.notes.map((note) => h("li", { text: note }))) : null,
      ENDED.has(status.state) && status.state !== "rejected"
        ? h("p", {}, h("a", { class: "button primary", id: "to-job", href: `${BASE}/jobs/${team}/${name}`, text: "Open the job" }))
        : null,
    ),
  );
}
