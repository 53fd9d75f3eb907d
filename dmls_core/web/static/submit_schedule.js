// When the job runs, what happens on drift, and where late labels are.

import { byId, h, put } from "./dom.js";
import { setIn } from "./submit_values.js";

const PRESETS = [
  ["", "Only when submitted"],
  ["@hourly", "Every hour"],
  ["@daily", "Every day at midnight"],
  ["@weekly", "Every Sunday at midnight"],
  ["@monthly", "On the first of each month"],
  ["data", "When new data arrives"],
  ["cron", "At other times (cron)"],
];
const CRON = { "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *" };
const EXAMPLE = "0 6 * * 1";

/** Return the preset of a schedule. */
function presetOf(schedule) {
  if (!schedule) return "";
  if (schedule.on === "data") return "data";
  return schedule.cron in CRON ? schedule.cron : "cron";
}

/** Set the schedule of a preset; keep the time zone and what else still fits. */
function setPreset(spec, preset) {
  const { cron, on: _, catchup, ...rest } = spec.schedule ?? {};
  if (!preset) delete spec.schedule;
  else if (preset === "data") spec.schedule = { on: "data", ...rest };
  else spec.schedule = { cron: preset === "cron" ? CRON[cron] ?? EXAMPLE : preset, ...(catchup ? { catchup } : {}), ...rest };
}

/** Draw the fields. */
export function showSchedule(state, changed) {
  const { document: spec } = state;
  const { schedule } = spec;
  const preset = presetOf(schedule);
  const field = (id, label, hint, control) => h("div", { class: "field" }, h("label", { for: id, text: label }), control, hint ? h("span", { class: "hint", text: hint }) : null);
  const text = (id, table, key, options) => h("input", {
    id, type: "text", spellcheck: "false", autocomplete: "off", value: spec[table]?.[key] ?? "", ...options,
    oninput: (event) => {
      setIn(spec, table, key, event.target.value.trim() || undefined);
      // Label files belong to logged requests, which [drift] turns on.
      if (key === "labels" && spec.data?.labels) spec.drift ??= { action: "report" };
      changed();
    },
  });
  const action = spec.drift ? spec.drift.action ?? "report" : "";
  put(byId("operation-form"), h("div", { class: "general" },
    field("schedule", "Run", "Every submission starts a run, too.", h("select", { id: "schedule", onchange: (event) => {
      setPreset(spec, event.target.value);
      changed(true);
    } }, PRESETS.map(([value, label]) => h("option", { value, selected: value === preset, text: label })))),
    preset === "cron" ? field("cron", "Cron expression", "Minute, hour, day, month, weekday", h("input", {
      id: "cron", type: "text", spellcheck: "false", autocomplete: "off", class: "mono", value: schedule.cron ?? "", "aria-describedby": "schedule-note",
      oninput: (event) => {
        spec.schedule.cron = event.target.value.trim();
        changed();
      },
    })) : null,
    preset && preset !== "data" ? field("timezone", "Time zone", "", [
      text("timezone", "schedule", "timezone", { placeholder: "UTC", list: "timezones", "aria-describedby": "schedule-note" }),
      h("datalist", { id: "timezones" }, Intl.supportedValuesOf("timeZone").map((name) => h("option", { value: name }))),
    ]) : null,
    field("drift", "Drift", "Compares new data and requests with the training data.", h("select", { id: "drift", onchange: (event) => {
      if (event.target.value) setIn(spec, "drift", "action", event.target.value);
      else {
        delete spec.drift;
        setIn(spec, "data", "labels", undefined); // requires logged requests
      }
      changed(true);
    } }, [["", "Not monitored"], ["report", "Report it"], ["retrain", "Report it and train again"]].map(([value, label]) =>
      h("option", { value, selected: value === action, text: label })))),
    field("labels", "Late labels", "Files in the job's folder with the request_id and the true target of earlier requests", text("labels", "data", "labels", { placeholder: "labels/{date}.csv" })),
  ));
}

/** Show the next runs, or the error in the schedule; `use` makes one of the columns of `dates` the time of the rows. */
export function showNextRuns(response, dates, use) {
  const problem = response.problems.find((one) => /^schedule\b/.test(one.key));
  const schedule = response.document?.schedule;
  for (const id of ["cron", "timezone"]) byId(id)?.setAttribute("aria-invalid", String(problem?.key === `schedule.${id}`));
  const found = problem?.found ? ` (found ${problem.found})` : "";
  const times = response.next_runs;
  put(byId("schedule-note"),
    problem && h("div", { class: "note bad" },
      h("p", { text: `${problem.key} ${problem.message}${found}; ${problem.hint}` }),
      problem.key === "schedule" && schedule?.cron && !response.document.columns?.time
        ? dates.map((name) => h("button", { type: "button", text: `Use ${name} as the time of the rows`, onclick: () => use(name) }))
        : null),
    times.length > 0 && [
      h("h3", { text: `Next runs (${schedule.timezone ?? "UTC"})` }),
      h("ol", { class: "next-runs" }, times.map((time) => h("li", { class: "number", text: shownTime(time) }))),
      h("p", { class: "hint", text: `Each starts up to ${shownDelay(schedule.jitter ?? 300)} later, so that jobs do not all start at once.` }),
    ]);
}

/** Format a time in its own time zone: Mon, 30 Nov 2026, 06:00. */
function shownTime(time) {
  const [day, clock] = time.split("T");
  const date = new Date(day).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
  return `${date}, ${clock.slice(0, 5)}`;
}

function shownDelay(jitter) {
  const seconds = typeof jitter === "object" ? jitter.float : jitter;
  return seconds >= 120 ? `${Math.round(seconds / 60)} minutes` : `${seconds} seconds`;
}
