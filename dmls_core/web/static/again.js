// The dialog "Run again": the hyperparameters of one run, by the widgets of the form.

import { api } from "./app.js";
import { byId } from "./dom.js";
import { section } from "./submit_form.js";

let models = [];
let accepted = {};
let spec = {};

/** Show the hyperparameters of the accepted spec, which `box.dataset.models` has with all defaults. */
export async function showHyperparameters(box) {
  const catalogue = await api("/catalogue");
  const known = new Map(catalogue.models.map((model) => [model.name, model]));
  const given = JSON.parse(box.dataset.models);
  models = given.map(({ name }) => known.get(name));
  accepted = { model: given.map(({ name }) => name) };
  for (const { name, hyperparameters } of given) accepted[name] = asWritten(known.get(name), hyperparameters);
  spec = structuredClone(accepted);
  draw(box);
}

/** Return the tables as a user writes them: without defaults, and a single value as one. */
function asWritten(model, tables) {
  const written = {};
  for (const { name, default: standard } of model.hyperparameters) {
    const { min, max, step, log, values } = tables[name] ?? {};
    if (values?.length === 1) {
      if (JSON.stringify(values[0]) !== JSON.stringify(standard)) written[name] = { value: values[0] };
    } else if (values) written[name] = { values };
    else if (min !== undefined) written[name] = { min, max, ...(step && { step }), ...(log && { log }) };
  }
  return written;
}

function draw(box) {
  const focused = document.activeElement?.id;
  const open = [...box.querySelectorAll("details[open]")].map((found) => found.id);
  box.replaceChildren(...models.map((model) => section(spec, model, (again) => again && draw(box))));
  for (const id of open) byId(id)?.setAttribute("open", "");
  if (focused) byId(focused)?.focus();
}

/** Return the tables that differ from the accepted spec, by model, as the configuration of a run has them. */
export function changedHyperparameters() {
  const changes = {};
  for (const model of models) {
    for (const { name, default: standard } of model.hyperparameters) {
      const [now, before] = [spec, accepted].map((one) => one[model.name]?.[name] ?? one[name]);
      if (JSON.stringify(now) === JSON.stringify(before)) continue;
      (changes[model.name] ??= {})[name] = now ?? { value: standard };
    }
  }
  return changes;
}
