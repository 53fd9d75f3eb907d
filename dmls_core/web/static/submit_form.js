// Models and the ranges of their hyperparameters, from the catalogue.

import { byId, h, shown } from "./dom.js";
import { numberOf, numeric, read, setIn, written } from "./submit_values.js";

/** The hyperparameter tables of a model in the document; a spec with several models has a table for each. */
class Tables {
  constructor(document, model) {
    this.document = document;
    this.model = model;
    this.models = [document.model].flat();
  }

  get(name) {
    return this.document[this.model.name]?.[name] ?? this.document[name];
  }

  set(name, table) {
    this.separate();
    const ofModel = this.document[this.model.name];
    const tables = this.models.length > 1 || ofModel?.[name] !== undefined ? ofModel : this.document;
    if (table === null) delete tables[name];
    else tables[name] = table;
    if (ofModel && !Object.keys(ofModel).length) delete this.document[this.model.name];
  }

  /** With several models, copy shared hyperparameters into each model's own table, so that they can differ. */
  separate() {
    if (this.models.length < 2) return;
    this.document[this.model.name] ??= {};
    for (const hyper of this.model.hyperparameters) {
      if (this.document[hyper.name] === undefined) continue;
      for (const other of this.models) {
        const tables = (this.document[other] ??= {});
        tables[hyper.name] ??= structuredClone(this.document[hyper.name]);
      }
      delete this.document[hyper.name];
    }
  }
}

/** Draw the form. */
export function showForm(state, changed) {
  const { document: spec, catalogue } = state;
  const chosen = [spec.model].flat();
  const known = new Map(catalogue.models.map((model) => [model.name, model]));
  const auto = catalogue.auto.find((one) => one.name === spec.model);
  const first = known.get(auto?.models[0] ?? chosen[0]);
  const task = first?.task ?? "classification";
  const open = new Set([...byId("form").querySelectorAll("details[open]")].map((found) => found.id));
  byId("form").replaceChildren(
    choice(state, task, chosen, changed),
    general(spec, first, changed),
    ...chosen.filter((name) => known.has(name)).map((name) => section(spec, known.get(name), changed)),
  );
  for (const id of open) byId(id)?.setAttribute("open", "");
}

function choice(state, task, chosen, changed) {
  const option = (name, hint, choose) =>
    h("label", { class: "model" },
      h("input", {
        type: "checkbox",
        id: `model-${name}`,
        checked: chosen.includes(name),
        onchange: (event) => {
          choose(event.target.checked);
          changed(true);
        },
      }),
      h("span", {}, h("strong", { text: name }), h("span", { class: "hint", text: ` ${hint}` })),
    );
  const { auto, models } = state.catalogue;
  return h("fieldset", { class: "models" },
    h("legend", { text: "Models (if you select several, DMLS trains all of them and keeps the best)" }),
    auto.filter((one) => one.task === task).map((one) =>
      option(one.name, `DMLS's choice: ${one.models.join(", ")}. The best boosted trees are averaged.`, (on) => on && leaveChoice(state, one))),
    models.filter((model) => model.task === task).map((model) =>
      option(model.name, `${model.description}${model.engines.includes("gpu") ? " Runs on GPUs." : ""}`, (on) => toggle(state, model, on))),
  );
}

/** Leave the choice of models to DMLS: no model has a range. */
function leaveChoice(state, auto) {
  const spec = state.document;
  for (const model of state.catalogue.models) {
    delete spec[model.name];
    for (const hyper of model.hyperparameters) delete spec[hyper.name];
  }
  spec.model = auto.name;
}

/** Add or remove a model; keep the ranges of the others. */
function toggle(state, model, on) {
  const spec = state.document;
  if (state.catalogue.auto.some((one) => one.name === spec.model)) {
    spec.model = model.name;
    Object.assign(spec, structuredClone(model.search));
    return;
  }
  const before = [spec.model].flat();
  const after = on ? [...before, model.name] : before.filter((name) => name !== model.name);
  if (!after.length) return; // the last one stays
  const known = new Map(state.catalogue.models.map((one) => [one.name, one]));
  if (before.length === 1 && after.length > 1) {
    const only = known.get(before[0]);
    const own = { ...spec[only.name] };
    for (const hyper of only.hyperparameters) {
      if (spec[hyper.name] === undefined) continue;
      own[hyper.name] ??= spec[hyper.name];
      delete spec[hyper.name];
    }
    if (Object.keys(own).length) spec[only.name] = own;
  }
  if (on) spec[model.name] ??= structuredClone(model.search);
  else delete spec[model.name];
  spec.model = after.length === 1 ? after[0] : after;
  if (after.length === 1) {
    const own = spec[after[0]];
    delete spec[after[0]];
    Object.assign(spec, own ?? {});
  }
}

function general(spec, model, changed) {
  const metric = spec.search?.metric ?? "";
  const mode = spec.deploy?.mode ?? "manual";
  const put = (table, key, value) => {
    setIn(spec, table, key, value);
    changed();
  };
  return h("div", { class: "general" },
    h("div", { class: "field" },
      h("label", { for: "n_trials", text: "Trials" }),
      h("input", { id: "n_trials", type: "number", min: 1, max: 10000, value: spec.n_trials ?? 20, oninput: (event) => {
        spec.n_trials = numberOf(event.target.value) ?? event.target.value;
        changed();
      } }),
      h("span", { class: "hint", text: "Number of hyperparameter sets to evaluate." })),
    h("div", { class: "field" },
      h("label", { for: "metric", text: "Metric" }),
      h("select", { id: "metric", onchange: (event) => put("search", "metric", event.target.value || undefined) },
        h("option", { value: "", selected: !metric, text: `${model?.default_metric ?? ""} (default)` }),
        (model?.metrics ?? []).filter((one) => one.name !== model.default_metric || one.name === metric).map((one) =>
          h("option", { value: one.name, selected: one.name === metric, text: one.name }))),
      h("span", { class: "hint", text: model?.metrics.find((one) => one.name === (metric || model.default_metric))?.description ?? "" })),
    h("div", { class: "field" },
      h("label", { for: "mode", text: "After training" }),
      h("select", { id: "mode", onchange: (event) => put("deploy", "mode", event.target.value === "manual" ? undefined : event.target.value) },
        [["manual", "Wait for approval"], ["auto", "Deploy if better than the champion"], ["never", "Do not deploy"]].map(([value, label]) =>
          h("option", { value, selected: value === mode, text: label })))),
  );
}

/** Return the hyperparameters of a model in the document, which its fields change. */
export function section(spec, model, changed) {
  const tables = new Tables(spec, model);
  const rows = (list) => list.map((hyper) => hyperparameter(tables, model, hyper, changed));
  const searched = model.hyperparameters.filter((hyper) => tables.get(hyper.name) !== undefined);
  const rest = model.hyperparameters.filter((hyper) => tables.get(hyper.name) === undefined);
  return h("section", { class: "hypers", "aria-label": model.name },
    h("h3", { text: model.name }),
    searched.length ? null : h("p", { class: "note", text: "No hyperparameter is selected: DMLS searches the default ranges." }),
    h("div", { class: "hyper-list" }, rows(searched)),
    h("details", { id: `more-${model.name}` },
      h("summary", { text: `${rest.length} more hyperparameters with default values` }),
      h("div", { class: "hyper-list" }, rows(rest))),
  );
}

function hyperparameter(tables, model, hyper, changed) {
  const table = tables.get(hyper.name);
  const id = `${model.name}-${hyper.name}`;
  const words = hyper.kind === "choice" || hyper.kind === "bool";
  const modes = words
    ? [["default", `default: ${written(hyper.default)}`], ["values", "several values"]]
    : [["default", `default: ${written(hyper.default)}`], ["range", "range"], ["values", "list"], ["value", "one value"]];
  const mode = modeOf(table, words);
  return h("div", { class: "hyper", role: "group", "aria-labelledby": `${id}-label` },
    h("div", { class: "what" },
      h("label", { id: `${id}-label`, for: `${id}-mode`, text: hyper.name }),
      h("span", { class: "hint", text: hyper.description })),
    h("select", { id: `${id}-mode`, onchange: (event) => {
      tables.set(hyper.name, initialTable(event.target.value, hyper, table));
      byId(`more-${model.name}`)?.setAttribute("open", "");
      changed(true);
    } }, modes.map(([value, label]) => h("option", { value, selected: value === mode, text: label }))),
    h("div", { class: "inputs" }, inputs(id, mode, hyper, table, (now, again) => {
      tables.set(hyper.name, now);
      changed(again);
    })),
  );
}

function modeOf(table, words) {
  if (table === undefined) return "default";
  if ("values" in table) return "values";
  if ("value" in table) return words ? "values" : "value";
  return "range";
}

/** Return the initial table of a mode. */
function initialTable(mode, hyper, before) {
  const numbers = (before?.values ?? []).map(numeric).filter((value) => value !== null);
  switch (mode) {
    case "default": return null;
    case "value": return { value: before?.min ?? before?.values?.[0] ?? hyper.default };
    case "values": {
      if ("values" in hyper.suggested) return structuredClone(hyper.suggested);
      return { values: before?.min === undefined ? [hyper.default] : [before.min, before.max] };
    }
    default:
      if ("min" in hyper.suggested) return structuredClone(hyper.suggested);
      return numbers.length > 1 ? { min: Math.min(...numbers), max: Math.max(...numbers) } : { min: 0.1, max: 1.0 };
  }
}

function inputs(id, mode, hyper, table, put) {
  if (mode === "default") return [];
  if (hyper.kind === "choice" || hyper.kind === "bool") return checks(id, hyper, table, put);
  const legal = `${limit(hyper)}${hyper.choices.length ? ` or ${hyper.choices.join(", ")}` : ""}`;
  if (mode === "range") {
    let now = table;
    const part = (key, label) => h("label", { class: "part" }, `${label} `,
      h("input", { id: `${id}-${key}`, type: "text", inputmode: "decimal", size: 8, value: written(table[key] ?? ""), "aria-describedby": `${id}-legal`, oninput: (event) => {
        now = { ...now, [key]: read(event.target.value) };
        put(now);
      } }));
    return [part("min", "from"), part("max", "to"),
      h("label", { class: "part" }, h("input", { id: `${id}-log`, type: "checkbox", checked: table.log === true, onchange: (event) => {
        const { log: _, ...rest } = now;
        now = event.target.checked ? { ...rest, log: true } : rest;
        put(now);
      } }), " log scale"),
      h("span", { class: "hint legal", id: `${id}-legal`, text: limit(hyper) })];
  }
  const many = mode === "values";
  return [h("label", { class: "part wide" }, h("span", { class: "sr", text: `${hyper.name} ` }), many ? "values " : "value ",
    h("input", { id: `${id}-${mode}`, type: "text", value: many ? table.values.map(written).join(", ") : written(table.value), "aria-describedby": `${id}-legal`, oninput: (event) => {
      const parts = event.target.value.split(",").map((part) => part.trim()).filter(Boolean).map(read);
      put(many ? { values: parts } : { value: parts[0] ?? "" });
    } })),
    h("span", { class: "hint legal", id: `${id}-legal`, text: many ? `${legal}; separated by commas` : legal })];
}

function checks(id, hyper, table, put) {
  const all = hyper.kind === "bool" ? [false, true] : hyper.choices;
  const chosen = table.values ?? [table.value];
  return all.map((value) => h("label", { class: "part" },
    h("input", { type: "checkbox", id: `${id}-${value}`, checked: chosen.includes(value), onchange: (event) => {
      const now = all.filter((one) => (one === value ? event.target.checked : chosen.includes(one)));
      put(now.length === 1 ? { value: now[0] } : now.length ? { values: now } : null, true);
    } }), ` ${value}`));
}

function limit(hyper) {
  if (hyper.kind === "count") return `an integer from ${hyper.low}, or a fraction up to ${written(hyper.share_high)} such as 0.5`;
  const what = hyper.kind === "int" ? "an integer" : "a number";
  const low = hyper.low === null ? "" : `${hyper.low_open ? "above" : "from"} ${shown(numeric(hyper.low))}`;
  return [what, low, hyper.high === null ? "" : `to ${shown(numeric(hyper.high))}`].filter(Boolean).join(" ");
}
