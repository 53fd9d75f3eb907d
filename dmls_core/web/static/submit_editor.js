// The TOML editor: line numbers, and errors by line.

import { byId, h, shown, write } from "./dom.js";

const area = byId("toml");
const lines = byId("lines");
let wrong = new Set();

export const text = () => area.value;

/** Replace the text, unless it is the same. */
export function setText(toml) {
  if (area.value === toml) return;
  area.value = toml;
  number();
}

/** Call `soon` and `now` on each edit by the user. */
export function onEdit(soon, now) {
  area.addEventListener("input", () => {
    number();
    write(byId("verdict"), "checking");
    byId("verdict").className = "badge";
    soon();
    now();
  });
}

/** Show the errors of the spec, or its summary. */
export function showProblems(problems, gist = null) {
  wrong = new Set(problems.map((problem) => problem.line));
  number();
  const verdict = byId("verdict");
  const empty = !area.value.trim();
  write(verdict, empty ? "empty" : problems.length ? problems.length === 1 ? "1 error" : `${problems.length} errors` : "valid");
  verdict.className = `badge ${empty ? "" : problems.length ? "bad" : "good"}`;
  area.setAttribute("aria-invalid", String(!empty && problems.length > 0));
  byId("problems").replaceChildren(...(empty ? [] : problems.map(item)));
  write(byId("summary"), gist && !empty ? summary(gist) : "");
}

function item(problem) {
  const where = problem.line ? `line ${problem.line}${problem.column ? `, column ${problem.column}` : ""}` : "";
  const detail = [
    problem.found && `found ${problem.found}`,
    problem.expected && `expected ${problem.expected}`,
  ].filter(Boolean).join("; ");
  return h("li", {},
    where && problem.file !== "the data"
      ? h("button", { type: "button", class: "place", onclick: () => go(problem), text: where })
      : null,
    " ",
    problem.key ? h("code", { text: problem.key }) : null,
    ` ${problem.message}`,
    detail ? h("span", { class: "hint", text: ` (${detail})` }) : null,
    problem.hint ? h("span", { class: "fix", text: problem.hint }) : null,
  );
}

function go(problem) {
  const rows = area.value.split("\n");
  const start = rows.slice(0, problem.line - 1).reduce((sum, row) => sum + row.length + 1, 0);
  const from = start + Math.max(0, (problem.column ?? 1) - 1);
  area.focus();
  area.setSelectionRange(from, start + (rows[problem.line - 1]?.length ?? 0));
  area.scrollTop = Math.max(0, (problem.line - 5) * (area.scrollHeight / rows.length));
}

function summary(gist) {
  const models = new Intl.ListFormat("en-GB").format(gist.models);
  const deploy = {
    manual: "you approve the model before it is served",
    auto: "the model is served if it beats the champion",
    never: "the model is not served",
  }[gist.deploy];
  const share = shown(100 * gist.holdout, 3);
  const trials = gist.n_trials === 1 ? "1 trial" : `up to ${gist.n_trials} trials`;
  return `Predicts ${gist.target} with ${models}: ${trials}, scored by ${gist.metric}, ${share} % of the rows held out; ${deploy}.`;
}

function number() {
  const count = area.value.split("\n").length;
  lines.replaceChildren(
    ...Array.from({ length: count }, (_, at) =>
      h("span", { class: wrong.has(at + 1) ? "wrong" : null, text: String(at + 1) })),
  );
  lines.scrollTop = area.scrollTop;
}

area.addEventListener("scroll", () => {
  lines.scrollTop = area.scrollTop;
});
number();
