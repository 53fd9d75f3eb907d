// The columns of the data: their types, and the role of each.

import { bar, bars, byId, h, put, shown, write } from "./dom.js";

const MOST = 200;
const RELATIONS = 8;
const LEFT_OUT = 12;
const ROLES = [
  ["target", "Target"],
  ["feature", "Feature"],
  ["category", "Categorical feature"],
  ["date", "Date feature"],
  ["out", "Ignore"],
  ["id", "ID"],
  ["time", "Time"],
];
const ORDERS = [
  ["year-first", "Year first: 2026-01-31"],
  ["day-first", "Day first: 31.1.2026"],
  ["month-first", "Month first: 1/31/2026"],
];
const KINDS = {
  number: "number",
  code: "few integers",
  category: "category",
  date: "date",
  id: "ID",
  text: "text",
  constant: "constant",
  empty: "empty",
  unusable: "nested or binary",
};

/** Return the role of a column in the document. */
function roleOf(columns, name) {
  for (const role of ["target", "id", "time"]) if (columns[role] === name) return role;
  const listed = columns.features?.length ? columns.features.includes(name) : !columns.drop?.includes(name);
  if (!listed) return "out";
  if (columns.dates?.includes(name)) return "date";
  return columns.categorical?.includes(name) ? "category" : "feature";
}

/** Return the role of a column that has no other, as in the inferred spec. */
function usualRole(column, { date_order: order = "year-first" }) {
  if (column.orders.includes(order)) return "date";
  if (column.reason || column.kind === "date") return "out";
  return column.kind === "category" ? "category" : "feature";
}

/** Set the role of a column in the document, which lists the features or the ignored columns, as before. */
export function setRole(state, name, role) {
  const before = state.document.columns ?? {};
  const names = state.schema.columns.map((column) => column.name);
  const roles = new Map(names.map((column) => [column, roleOf(before, column)]));
  for (const column of state.schema.columns) {
    if (roles.get(column.name) === role && ["target", "id", "time"].includes(role)) roles.set(column.name, usualRole(column, before));
  }
  roles.set(name, role);
  const having = (...wanted) => names.filter((column) => wanted.includes(roles.get(column)));
  const { target: _t, features: _f, categorical: _c, dates: _a, drop: _d, id: _i, time: _m, ...rest } = before;
  const [target] = having("target");
  const [id] = having("id");
  const [time] = having("time");
  const categorical = having("category");
  const dates = having("date");
  const out = having("out");
  state.document.columns = {
    ...(target ? { target } : {}),
    ...(before.features?.length ? { features: having("feature", "category", "date") } : out.length ? { drop: out } : {}),
    ...(categorical.length ? { categorical } : {}),
    ...(dates.length ? { dates } : {}),
    ...(id ? { id } : {}),
    ...(time ? { time } : {}),
    ...rest,
  };
}

/** Leave the choice of the target to the user: until then, the guess is a feature. */
export function forgetTarget(state) {
  const guess = state.schema.columns.find((column) => column.name === state.schema.target);
  setRole(state, guess.name, usualRole(guess, state.document.columns));
  setMetric(state, "");
}

/** Draw the table of columns, the class balance, and the first rows. */
export function showColumns(state, changed) {
  const { schema } = state;
  const columns = state.document.columns ?? {};
  const target = schema.columns.find((column) => column.name === columns.target);
  const choose = (column) => {
    setRole(state, column.name, "target");
    fitTask(state, column, target);
    changed(true);
    focusRole(schema, column.name);
  };
  const ignore = (name) => {
    setRole(state, name, "out");
    changed(true);
    focusRole(schema, name);
  };
  const used = (name) => roleOf(columns, name) !== "out";
  summary(schema, target, choose);
  put(byId("relations"), relations(schema.relations.filter((one) => used(one.column) && used(one.other)), target, schema.totals[target?.name], ignore));
  put(byId("remarks"), schema.remarks.length ? h("ul", { class: "note warn" }, schema.remarks.map((text) => h("li", { text }))) : null);
  put(byId("left-out"), leftOut(schema, columns, target));
  balance(schema, target, state.document.search?.metric);
  byId("columns").replaceChildren(
    ...schema.columns.slice(0, MOST).map((column, at) =>
      h("tr", { class: columns.target === column.name ? "is-target" : null },
        h("th", { scope: "row", title: column.name, text: column.name }),
        h("td", {}, h("span", { class: "badge", text: KINDS[column.kind] })),
        h("td", {}, h("select", {
          id: `role-${at}`,
          "aria-label": `Use ${column.name} as`,
          onchange: (event) => {
            if (event.target.value === "target") return choose(column);
            setRole(state, column.name, event.target.value);
            changed(true);
          },
        }, ROLES.filter(([value]) => value === roleOf(columns, column.name) || value !== (column.kind === "date" ? "feature" : "date")).map(([value, label]) =>
          h("option", { value, selected: roleOf(columns, column.name) === value, text: label })))),
        h("td", { class: "missing" }, missing(column, schema.seen)),
        h("td", { class: "values" }, values(column)),
      )),
  );
  put(byId("date-order"), dateOrder(state, changed));
  const more = byId("columns-more");
  more.hidden = schema.columns.length <= MOST;
  write(more, `${schema.columns.length - MOST} more columns are in the spec.`);
  preview(schema);
}

/** Focus a column's role in the table: the button that was pressed is gone. */
function focusRole(schema, name) {
  const role = byId(`role-${schema.columns.findIndex((column) => column.name === name)}`);
  role?.focus({ preventScroll: true });
  role?.scrollIntoView({ block: "nearest" });
}

/** Let the user correct the order of dates; a column whose dates cannot be read in it is ignored. */
function dateOrder(state, changed) {
  // A column of ISO dates is read in any order.
  const dates = state.schema.columns.filter(({ orders }) => orders.length && orders.length < ORDERS.length);
  if (!dates.length) return null;
  const before = state.document.columns?.date_order ?? "year-first";
  const choose = (order) => {
    const { date_order: _, ...rest } = state.document.columns ?? {};
    state.document.columns = order === "year-first" ? rest : { ...rest, date_order: order };
    for (const { name, orders } of dates) {
      if (roleOf(rest, name) === "date" && !orders.includes(order)) setRole(state, name, "out");
      if (roleOf(rest, name) === "out" && orders.includes(order) && !orders.includes(before)) setRole(state, name, "date");
    }
    changed(true);
  };
  const unsure = dates.filter(({ orders }) => orders.length > 1).map(({ name }) => name);
  return h("div", { class: "field" },
    h("label", { for: "order-of-dates", text: "Order of dates" }),
    h("select", { id: "order-of-dates", "aria-describedby": "order-hint", onchange: (event) => choose(event.target.value) },
      ORDERS.map(([value, label]) => h("option", { value, selected: value === before, text: label }))),
    h("span", { class: "hint", id: "order-hint", text: unsure.length ? `The dates of ${unsure.join(", ")} can be read in two orders: check it.` : "Found in the rows that were read." }));
}

/** Take the metric of the new target, unless the user chose one; of another task, also its model. */
function fitTask(state, column, former) {
  const { task, model, metric } = column.as_target;
  const models = [state.document.model].flat();
  const { auto } = state.catalogue;
  const known = new Map([...auto, ...state.catalogue.models].map((one) => [one.name, one]));
  if (models.some((name) => known.get(name)?.task === task)) {
    if ((state.document.search?.metric ?? "") === (former?.as_target.metric ?? "")) setMetric(state, metric);
    return;
  }
  const own = new Set(state.catalogue.models.flatMap((one) => [one.name, ...one.hyperparameters.map((hyper) => hyper.name)]));
  const kept = Object.entries(state.document).filter(([name]) => !own.has(name) && name !== "model");
  state.document = { model, ...Object.fromEntries(kept) };
  setMetric(state, metric);
}

function setMetric(state, metric) {
  const { search: { metric: _, ...search } = {}, ...rest } = state.document;
  const tuned = metric ? { ...search, metric } : search;
  state.document = Object.keys(tuned).length ? { ...rest, search: tuned } : rest;
}

function summary(schema, target, choose) {
  const all = schema.spread && (schema.rows !== null || !schema.extent);
  const place = all ? "the file" : schema.extent || "its beginning";
  const sample = `${schema.seen.toLocaleString("en")} rows from ${schema.spread ? "all over " : ""}${place}`;
  const rows = schema.rows === null ? sample : `${schema.rows.toLocaleString("en")} rows`;
  const seen = schema.rows !== null && schema.seen && schema.seen < schema.rows ? ` (${sample} were read)` : "";
  const count = schema.columns.length;
  put(byId("schema-summary"),
    `${rows}${seen}, ${count} columns. `,
    schema.seen ? null : h("span", { class: "hint", text: "The file is large: only its columns and types are known before the upload." }),
    target
      ? h("span", {}, "Target: ", h("strong", { text: target.name }), ` (${target.as_target.task === "regression" ? "number" : "class"})`)
      : likely(schema, choose),
  );
}

function likely(schema, choose) {
  return h("div", { class: "note warn" },
    h("p", {}, h("strong", { text: "Which column is to be predicted? " }), "Choose the target here, or in the table."),
    h("div", { class: "buttons" }, schema.likely.map((name) =>
      h("button", { type: "button", onclick: () => choose(schema.columns.find((column) => column.name === name)), text: name }))),
  );
}

/** Point out columns that give the target away, also as the sum that `total` says, then those that give each other away. */
function relations(all, target, total, ignore) {
  const own = (one) => one.other === target?.name || (one.both && one.column === target?.name);
  const found = all.filter((one) => one.both || own(one));
  if (!found.length && !total) return null;
  const sorted = found.sort((one, other) => own(other) - own(one)).slice(0, RELATIONS);
  return h("ul", { class: "note warn" }, total ? h("li", {}, h("strong", { text: total })) : null, sorted.map((one) => {
    const idle = one.column === target?.name ? one.other : one.column;
    return h("li", {},
      own(one) ? h("strong", { text: one.both ? one.message.replace("one of them", idle) : one.message }) : one.message, " ",
      h("button", { type: "button", onclick: () => ignore(idle), text: `Ignore ${idle}` }));
  }));
}

/** List what training does not use: ignored columns, and rows without a target. */
function leftOut(schema, columns, target) {
  const out = schema.columns.filter((column) => roleOf(columns, column.name) === "out");
  const items = out.slice(0, LEFT_OUT).map((column) => h("li", {}, h("strong", { text: column.name }), ` (${column.reason || "the spec excludes it"})`));
  if (out.length > LEFT_OUT) items.push(h("li", { text: `${out.length - LEFT_OUT} more columns` }));
  if (target?.missing) {
    const whole = schema.rows === schema.seen;
    items.push(h("li", {}, `${whole ? "" : "In a sample, "}${target.missing} of ${schema.seen} rows have no target and were left out`));
  }
  return items.length ? [h("h3", { text: "Left out of the training" }), h("ul", { class: "left-out" }, items)] : null;
}

function balance(schema, target, metric) {
  const box = byId("balance");
  if (!target || !schema.seen) return put(box);
  if (target.as_target.task === "regression" && target.histogram.length) {
    return put(box,
      h("h3", { text: `Distribution of ${target.name}` }),
      h("div", { class: "spread" }, bars(target.histogram)),
      h("p", { class: "hint", text: `${shown(target.low)} to ${shown(target.high)}` }),
    );
  }
  const present = schema.seen - target.missing;
  const most = Math.max(...target.top.map(([, count]) => count));
  return put(box,
    h("h3", { text: `Classes of ${target.name}` }),
    h("ul", { class: "classes" }, target.top.map(([label, count]) =>
      h("li", {},
        h("span", { class: "label", text: label }),
        bar(count / most),
        h("span", { class: "number", text: `${count.toLocaleString("en")} (${shown((100 * count) / present, 3)} %)` }),
      ))),
    target.distinct > target.top.length ? h("p", { class: "hint", text: `and ${target.distinct - target.top.length} more` }) : null,
    target.as_target.metric ? h("p", { class: "note warn", text: `The classes are imbalanced: accuracy hides errors on rare classes. ${metric === target.as_target.metric ? `The search uses ${metric}.` : `Consider the metric ${target.as_target.metric}.`}` }) : null,
  );
}

function missing(column, seen) {
  if (!column.missing) return h("span", { class: "muted", text: "none" });
  const share = column.missing / seen;
  return h("span", { class: share > 0.3 ? "much" : null }, `${shown(100 * share, 2)} %`, bar(share, "warn"));
}

function values(column) {
  if (column.histogram.length) {
    return [bars(column.histogram), h("span", { class: "hint", text: `${shown(column.low)} to ${shown(column.high)}` })];
  }
  const few = column.top.slice(0, 4).map(([text]) => text).join(", ");
  const more = column.distinct > 4 ? `, … (${column.distinct.toLocaleString("en")})` : "";
  return h("span", { class: "hint few", text: few + more });
}

function preview(schema) {
  const names = schema.columns.map((column) => column.name).slice(0, schema.preview[0]?.length ?? 0);
  byId("preview").replaceChildren(
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", text: name })))),
    h("tbody", {}, schema.preview.map((row) =>
      h("tr", {}, row.map((cell) => (cell === null ? h("td", {}, h("span", { class: "gap", text: "missing" })) : h("td", { text: cell })))))),
  );
  byId("preview").closest("details").hidden = schema.preview.length === 0;
}
