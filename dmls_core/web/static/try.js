// Try the served model: predict a row, copy the request, score a CSV.

import { api, toast } from "./app.js";
import { bar, byId, bytes, h, shown } from "./dom.js";

const BASE = document.body.dataset.base;
const { team, name } = byId("try").dataset;
const job = `${encodeURIComponent(team)}/${encodeURIComponent(name)}`;
const MOST_CHOICES = 50;
let signature = null;

function field(column, at) {
  const id = `field-${at}`;
  const hint = column.range ? `${shown(column.range[0])} to ${shown(column.range[1])} in training` : column.kind;
  const props = { id, "data-column": column.name, "aria-describedby": `${id}-hint` };
  const few = column.categories && column.categories.length <= MOST_CHOICES;
  const example = column.example === null ? "" : String(column.example);
  return h("div", { class: "field" },
    h("label", { for: id, text: column.name }),
    few
      ? h("select", props,
          h("option", { value: "", text: "(missing)" }),
          column.categories.map((category) => h("option", { value: category, selected: category === example, text: category })))
      : h("input", { ...props, type: "text", inputmode: column.kind === "number" ? "decimal" : null, value: example, autocomplete: "off", spellcheck: "false", list: column.categories ? `${id}-list` : null }),
    column.categories && !few
      ? h("datalist", { id: `${id}-list` }, column.categories.slice(0, 1000).map((category) => h("option", { value: category })))
      : null,
    h("span", { class: "hint", id: `${id}-hint`, text: column.categories ? `${column.categories.length} categories` : hint }),
  );
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

async function copy(code, title) {
  try {
    await navigator.clipboard.writeText(code);
  } catch {
    // Without a secure context there is no clipboard API.
    const area = h("textarea", { class: "sr", value: code });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return toast("The browser does not allow this page to copy.", "bad");
  }
  toast(`Copied: ${title}.`);
}

byId("row").addEventListener("submit", async (event) => {
  event.preventDefault();
  const row = {};
  for (const input of byId("fields").querySelectorAll("[data-column]")) row[input.dataset.column] = input.value;
  byId("ask").disabled = true;
  try {
    const response = await api(`/jobs/${job}/predict`, { method: "POST", json: { row } });
    const likely = [...response.probabilities].sort((a, b) => b.probability - a.probability);
    byId("answer").replaceChildren(
      h("p", { class: "muted", text: response.target }),
      h("p", { class: "verdict-line", id: "prediction", text: likely.length ? response.prediction : shown(response.prediction, 6) }),
      likely.length
        ? h("ul", { class: "chances" }, likely.slice(0, 20).map(({ label, probability }) =>
            h("li", {}, h("span", { class: "label", text: label }), bar(probability), h("span", { class: "number", text: `${(100 * probability).toFixed(1)} %` }))))
        : "",
      h("p", { class: "hint", text: `Version ${response.version} responded in ${shown(response.milliseconds, 3)} ms.` }),
    );
    byId("calls").hidden = false;
    byId("answer").scrollIntoView({ block: "nearest" });
    byId("calls").replaceChildren(call("The same with curl", response.curl), call("The same in Python", response.python));
  } catch (error) {
    failed(byId("answer"), error, "The prediction failed:");
    byId("calls").hidden = true;
  }
  byId("ask").disabled = false;
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
      const problem = await response.json().catch(() => ({ detail: response.statusText }));
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
  byId("version").textContent = `version ${signature.version}`;
  byId("fields").replaceChildren(...signature.columns.map(field));
  byId("tools").hidden = false;
  byId("state").replaceChildren();
} catch (error) {
  failed(byId("state"), error, error.problem?.status === 404 ? "No model of this job is served yet." : "The model is not available now.");
}
