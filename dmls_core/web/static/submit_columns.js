// The columns of the data: what they look like, and what each is used as.

import { bar, bars, byId, h, put, shown } from "./dom.js";

const MOST = 200;
const UNEVEN = 0.4; // share of the rarest class, of an even share, as the first spec counts it
const ROLES = [
  ["target", "Target: predict it"],
  ["feature", "Feature"],
  ["category", "Feature, a category"],
  ["out", "Leave out"],
  ["id", "Names the row"],
  ["time", "When it was true"],
];
const KINDS = {
  number: "number",
  code: "few whole numbers",
  category: "category",
  date: "date",
  id: "names rows",
  text: "free text",
  constant: "always the same",
  empty: "empty",
  unusable: "nested or binary",
};

/** What a column is used as, by the document. */
function roleOf(columns, name) {
  for (const role of ["target", "id", "time"]) if (columns[role] === name) return role;
  const listed = columns.features?.length ? columns.features.includes(name) : !columns.drop?.includes(name);
  if (!listed) return "out";
  return columns.categorical?.includes(name) ? "category" : "feature";
}

/** Write a role into the document, which from then on lists its features. */
function setRole(state, name, role) {
  const before = state.document.columns ?? {};
  const names = state.sniffed.columns.map((column) => column.name);
  const roles = new Map(names.map((column) => [column, roleOf(before, column)]));
  for (const [column, had] of roles) {
    if (had === role && ["target", "id", "time"].includes(role)) roles.set(column, "out");
  }
  roles.set(name, role);
  const having = (...wanted) => names.filter((column) => wanted.includes(roles.get(column)));
  const { target: _t, features: _f, categorical: _c, drop: _d, id: _i, time: _m, ...rest } = before;
  const [target] = having("target");
  const [id] = having("id");
  const [time] = having("time");
  const categorical = having("category");
  state.document.columns = {
    ...(target ? { target } : {}),
    features: having("feature", "category"),
    ...(categorical.length ? { categorical } : {}),
    ...(id ? { id } : {}),
    ...(time ? { time } : {}),
    ...rest,
  };
}

/** Draw the table of columns, the balance of the classes and the first rows. */
export function showColumns(state, changed) {
  const { sniffed } = state;
  const columns = state.document.columns ?? {};
  const target = sniffed.columns.find((column) => column.name === columns.target);
  summary(sniffed, target);
  balance(sniffed, target, state.document.search?.metric);
  byId("columns").replaceChildren(
    ...sniffed.columns.slice(0, MOST).map((column, at) =>
      h("tr", { class: columns.target === column.name ? "is-target" : null },
        h("th", { scope: "row", title: column.name, text: column.name }),
        h("td", {}, h("span", { class: "badge", text: KINDS[column.kind] })),
        h("td", {}, h("select", {
          id: `role-${at}`,
          "aria-label": `Use ${column.name} as`,
          onchange: (event) => {
            setRole(state, column.name, event.target.value);
            if (event.target.value === "target") fitTask(state, column);
            changed(true);
          },
        }, ROLES.map(([value, label]) =>
          h("option", { value, selected: roleOf(columns, column.name) === value, text: label })))),
        h("td", { class: "missing" }, missing(column, sniffed.seen)),
        h("td", { class: "values" }, values(column)),
      )),
  );
  const more = byId("columns-more");
  more.hidden = sniffed.columns.length <= MOST;
  more.textContent = `${sniffed.columns.length - MOST} more columns are in the spec below.`;
  preview(sniffed);
}

/** A target of the other task needs other models: begin with their first. */
function fitTask(state, column) {
  const few = column.kind === "category" || column.kind === "code" || (column.whole && column.distinct === 2);
  const task = few ? "classification" : "regression";
  const models = [state.document.model].flat();
  const known = new Map(state.catalogue.models.map((model) => [model.name, model]));
  if (models.some((name) => known.get(name)?.task === task)) return;
  const own = new Set(state.catalogue.models.flatMap((model) => [model.name, ...model.hyperparameters.map((one) => one.name)]));
  const kept = Object.entries(state.document).filter(([name]) => !own.has(name) && name !== "model" && name !== "search");
  const first = state.catalogue.models.find((model) => model.task === task);
  const { metric: _, ...search } = state.document.search ?? {};
  state.document = {
    model: first.name,
    ...Object.fromEntries(kept),
    ...(Object.keys(search).length ? { search } : {}),
    ...structuredClone(first.search),
  };
}

function summary(sniffed, target) {
  const rows = sniffed.rows === null ? `The first ${shown(sniffed.seen)} rows` : `${sniffed.rows.toLocaleString("en")} rows`;
  const seen = sniffed.rows !== null && sniffed.seen && sniffed.seen < sniffed.rows ? `, of which the first ${shown(sniffed.seen)} were looked at` : "";
  const count = sniffed.columns.length;
  put(byId("look-summary"),
    `${rows}${seen}, ${count} columns. `,
    sniffed.seen ? null : h("span", { class: "hint", text: "The file is large: only its columns and types are known before it is read." }),
    target
      ? h("span", {}, "The target seems to be ", h("strong", { text: target.name }), `, a ${target.kind === "number" && !(target.whole && target.distinct === 2) ? "number" : "class"}.`)
      : h("strong", { text: "Choose the target: the column to predict." }),
  );
}

function balance(sniffed, target, metric) {
  const box = byId("balance");
  if (!target || !sniffed.seen) return put(box);
  if (target.kind === "number" && target.histogram.length && !(target.whole && target.distinct === 2)) {
    return put(box,
      h("h3", { text: `How ${target.name} is spread` }),
      h("div", { class: "spread" }, bars(target.histogram)),
      h("p", { class: "hint", text: `${shown(target.low)} to ${shown(target.high)}` }),
    );
  }
  const present = sniffed.seen - target.missing;
  const most = Math.max(...target.top.map(([, count]) => count));
  const least = Math.min(...target.top.map(([, count]) => count));
  const uneven = target.top.length === target.distinct && least < UNEVEN * (present / target.distinct);
  return put(box,
    h("h3", { text: `Classes of ${target.name}` }),
    h("ul", { class: "classes" }, target.top.map(([label, count]) =>
      h("li", {},
        h("span", { class: "label", text: label }),
        bar(count / most),
        h("span", { class: "number", text: `${count.toLocaleString("en")} (${shown((100 * count) / present, 3)} %)` }),
      ))),
    target.distinct > target.top.length ? h("p", { class: "hint", text: `and ${target.distinct - target.top.length} more` }) : null,
    uneven ? h("p", { class: "note warn", text: `The classes are uneven: accuracy hides errors on the rare ones. ${metric === "balanced_accuracy" ? "So the search goes by balanced accuracy." : "Balanced accuracy, below, does not."}` }) : null,
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

function preview(sniffed) {
  const names = sniffed.columns.map((column) => column.name).slice(0, sniffed.preview[0]?.length ?? 0);
  byId("preview").replaceChildren(
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col", text: name })))),
    h("tbody", {}, sniffed.preview.map((row) =>
      h("tr", {}, row.map((cell) => (cell === null ? h("td", {}, h("span", { class: "gap", text: "missing" })) : h("td", { text: cell })))))),
  );
  byId("preview").closest("details").hidden = sniffed.preview.length === 0;
}
