// What if: change a row and see the served model's prediction, copy the request, score a CSV.

import { api, copy, unexplained } from "./app.js";
import { bar, byId, bytes, debounced, h, put, shown, write } from "./dom.js";

const BASE = document.body.dataset.base;
const { team, name } = byId("try").dataset;
const job = `${encodeURIComponent(team)}/${encodeURIComponent(name)}`;
const MOST_CHOICES = 50;
const MOST_FIELDS = 60;
let signature = null;

/** Value of each column; the form of a wide table shows only some of them. */
const row = {};
let remarks = [];

const STEPS = 200;

function field(column, at) {
  const id = `field-${at}`;
  const props = { id, "data-column": column.name, "aria-describedby": `${id}-hint` };
  const few = column.categories && column.categories.length <= MOST_CHOICES;
  const example = row[column.name] === null ? "" : String(row[column.name]);
  const hint = column.range
    ? `${shown(column.range[0])} to ${shown(column.range[1])} in training`
    : column.categories ? `${column.categories.length} categories`
      : column.kind === "date" && column.example !== null ? `date, such as ${column.example}` : column.kind;
  return h("div", { class: "field" },
    h("label", { for: id, text: column.name }),
    few
      ? h("select", props,
          h("option", { value: "", text: "(missing)" }),
          column.categories.map((category) => h("option", { value: category, selected: category === example, text: category })))
      : h("input", { ...props, type: "text", inputmode: column.kind === "number" ? "decimal" : null, value: example, autocomplete: "off", spellcheck: "false", list: column.categories ? `${id}-list` : null }),
    column.range && column.range[0] < column.range[1] ? slider(column, id, example) : null,
    column.categories && !few
      ? h("datalist", { id: `${id}-list` }, column.categories.slice(0, 1000).map((category) => h("option", { value: category })))
      : null,
    h("span", { class: "hint", id: `${id}-hint`, text: hint }),
    h("span", { class: "outside", id: `${id}-remark`, hidden: true }),
  );
}

/** Create a slider over the range of the training data; it and the field follow each other. */
function slider(column, id, example) {
  const [low, high] = column.range;
  const whole = Number.isInteger(low) && Number.isInteger(high) && Number.isInteger(Number(example));
  const step = whole ? Math.max(1, Math.round((high - low) / STEPS)) : (high - low) / STEPS;
  const range = h("input", { type: "range", min: low, max: high, step: whole ? step : "any", value: example === "" ? low : example, "aria-label": `Slider of ${column.name}`, "data-slides": id });
  range.addEventListener("input", () => {
    byId(id).value = whole ? range.value : shown(range.value, 6).replaceAll(",", "");
    byId(id).dispatchEvent(new Event("change", { bubbles: true }));
  });
  return range;
}

function failed(box, error, words) {
  const items = error.problem?.problems ?? [];
  box.replaceChildren(h("div", { class: "note bad" },
    h("p", { text: words }),
    items.length ? h("ul", {}, items.map((item) => h("li", { text: [item.message, item.hint].filter(Boolean).join(": ") }))) : h("p", { text: error.message })));
}

function call(title, code) {
  return h("div", { class: "snippet" },
    h("div", { class: "snippet-head" },
      h("h3", { text: title }),
      h("button", { type: "button", onclick: () => copy(code, title), "aria-label": `Copy ${title}`, text: "Copy" })),
    h("pre", { tabindex: "0", role: "region", "aria-label": title, text: code }));
}

/** The prediction of the row that the page starts with, which changes are compared with. */
let start = null;
let latest = 0;

function readRow() {
  for (const input of byId("fields").querySelectorAll("[data-column]")) row[input.dataset.column] = input.value.trim() === "" ? null : input.value;
  return row;
}

function showFields() {
  readRow();
  const wanted = byId("find").value.trim().toLowerCase();
  const found = signature.columns.filter((column) => column.name.toLowerCase().includes(wanted)).slice(0, MOST_FIELDS);
  byId("fields").replaceChildren(...found.map(field));
  write(byId("found"), `${found.length} of ${signature.columns.length.toLocaleString("en")} columns; the others keep their values.`);
  remark();
}

/** Show what is special about a value below its field. */
function remark() {
  for (const input of byId("fields").querySelectorAll("[data-column]")) {
    const found = remarks.find((item) => item.column === input.dataset.column);
    const place = byId(`${input.id}-remark`);
    place.hidden = !found;
    write(place, found?.message ?? "");
  }
}

function change(now, before, percent) {
  if (before === undefined || before === null) return null;
  const moved = percent ? 100 * (now - before) : now - before;
  if (Math.abs(moved) < (percent ? 0.05 : 1e-9)) return null;
  return `${moved > 0 ? "+" : "−"}${percent ? `${Math.abs(moved).toFixed(1)} points` : shown(Math.abs(moved), 4)}`;
}

async function predict() {
  const mine = ++latest;
  const box = byId("answer");
  box.setAttribute("aria-busy", "true");
  try {
    const response = await api(`/jobs/${job}/predict`, { method: "POST", json: { row: readRow() } });
    if (mine !== latest) return;
    const likely = [...response.probabilities].sort((a, b) => b.probability - a.probability);
    const earlier = Object.fromEntries((start?.probabilities ?? []).map((item) => [item.label, item.probability]));
    const moved = likely.length ? null : change(response.prediction, start?.prediction, false);
    remarks = [...response.warnings, ...response.imputed];
    remark();
    put(box,
      h("p", { class: "muted", text: response.target }),
      h("p", { class: "verdict-line", id: "prediction", text: likely.length ? response.prediction : shown(response.prediction, 6) }),
      moved ? h("p", { class: "hint", text: `${moved} from the row that you started with` }) : null,
      likely.length
        ? h("ul", { class: "chances" }, likely.slice(0, 20).map(({ label, probability }) =>
            h("li", {}, h("span", { class: "label", text: label }), bar(probability), h("span", { class: "number" }, `${(100 * probability).toFixed(1)} %`, h("span", { class: "hint", text: ` ${change(probability, earlier[label], true) ?? ""}` })))))
        : null,
      response.warnings.length
        ? h("div", { class: "note warn" }, h("p", { text: "The model has not seen such values in training. Do not rely on this prediction:" }),
            h("ul", {}, response.warnings.map((item) => h("li", { text: `${item.column}: ${item.message}` }))))
        : null,
      response.imputed.length ? h("ul", { class: "hint" }, response.imputed.map((item) => h("li", { text: `${item.column}: ${item.message}` }))) : null,
      h("p", { class: "hint", text: `Version ${response.version} responded in ${shown(response.milliseconds, 3)} ms.` }),
    );
    const chance = likely.length ? ` (${(100 * likely[0].probability).toFixed(1)} %)` : "";
    write(byId("short-answer"), `${response.target}: ${likely.length ? response.prediction : shown(response.prediction, 6)}${chance}${response.warnings.length ? ", outside of the training range" : ""}`);
    start ??= response;
    byId("programs").hidden = false;
    byId("row-file").hidden = !response.row_file;
    if (response.row_file) saveRow(response.row_file);
    const open = [...byId("calls").querySelectorAll("details[open]")].map((item) => item.dataset.language);
    byId("calls").replaceChildren(...response.snippets.map(({ language, needs, code }, at) =>
      h("details", { open: open.length ? open.includes(language) : at === 0, "data-language": language },
        h("summary", {}, h("span", { text: language }), h("span", { class: "hint", text: ` needs ${needs}` })),
        call(`The same with ${language}`, code))));
  } catch (error) {
    if (mine !== latest) return;
    failed(box, error, "The prediction failed:");
    write(byId("short-answer"), "The prediction failed: see below.");
    byId("programs").hidden = true;
  }
  box.setAttribute("aria-busy", "false");
}

/** Offer the row as the file that the snippets read. */
function saveRow(name) {
  const link = byId("row-file").querySelector("a");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([JSON.stringify([readRow()])], { type: "application/json" }));
  link.download = name;
}

const predictSoon = debounced(predict, 250);

byId("row").addEventListener("submit", (event) => {
  event.preventDefault();
  predict();
});

byId("fields").addEventListener("change", (event) => {
  const input = event.target;
  const range = byId("fields").querySelector(`[data-slides="${input.id}"]`);
  if (range && input.value.trim() !== "") range.value = input.value;
  if (!input.dataset.column) return;
  byId("answer").setAttribute("aria-busy", "true");
  predictSoon();
});

byId("score").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [file] = byId("csv").files;
  const box = byId("scored");
  if (!file) return;
  const button = event.submitter ?? event.target.querySelector("button");
  button.disabled = true;
  box.replaceChildren(h("p", { class: "muted", text: `Sending ${file.name} (${bytes(file.size)}) …` }));
  try {
    const response = await fetch(`${BASE}/api/v1/scores/${job}?${new URLSearchParams({ file: file.name })}`, {
      method: "POST", body: file, headers: { "Content-Type": "text/csv" }, credentials: "same-origin",
    });
    if (!response.ok) {
      const problem = await response.json().catch(() => ({ detail: unexplained(response.status) }));
      throw Object.assign(new Error(problem.detail), { problem });
    }
    const parts = [];
    let size = 0;
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      size += value.length;
      box.replaceChildren(h("p", { class: "muted", text: `${bytes(size)} received …` }));
    }
    const link = h("a", { class: "button", id: "download", download: file.name.replace(/\.csv$/i, "") + "-predicted.csv", href: URL.createObjectURL(new Blob(parts, { type: "text/csv" })), text: "Save again" });
    box.replaceChildren(h("div", { class: "note good" }, h("p", { text: `Scored: ${bytes(size)}.` }), h("p", {}, link)));
    link.click();
  } catch (error) {
    failed(box, error, `${file.name} was not scored completely:`);
  }
  button.disabled = false;
});

try {
  signature = await api(`/jobs/${job}/signature`);
  write(byId("version"), `version ${signature.version}`);
  for (const column of signature.columns) row[column.name] = column.example;
  byId("finder").hidden = signature.columns.length <= MOST_FIELDS;
  byId("find").addEventListener("input", debounced(showFields, 150));
  showFields();
  byId("tools").hidden = false;
  byId("state").replaceChildren();
  await predict();
} catch (error) {
  failed(byId("state"), error, error.problem?.status === 404 ? "No model of this job is served." : "The model is not available now.");
}
