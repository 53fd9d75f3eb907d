// The expected time and memory of a run, from a sample of its data.

import { api } from "./app.js";
import { byId, bytes, h, put, shown } from "./dom.js";
import { sampleOf } from "./sample.js";

/** Ask for the estimate of a file, chosen from the disk or named in the job's folder, and show it. */
export async function showEstimate(path, toml, file) {
  const box = byId("estimated");
  put(box, h("p", { class: "muted", text: "Timing a few small fits …" }));
  const local = file instanceof File;
  const body = local ? { file: file.name, size: file.size, sample: await base64(sampleOf(file)) } : { file };
  const estimated = await api(`${path}/estimate`, { method: "POST", json: { toml, ...body } });
  put(box, h("div", { class: "note" },
    h("p", {}, "About ", h("strong", { text: time(estimated.seconds) }), " and ", h("strong", { text: bytes(estimated.memory_bytes) }), ` of memory for ${estimated.rows.toLocaleString("en")} rows.`,
      estimated.cost ? [" Cost: ", h("strong", { text: estimated.cost }), "."] : null),
    h("p", { class: "hint", text: `With one CPU of this server${estimated.sampled ? ", extrapolated from a sample" : ""}.` }),
    estimated.warnings.map((warning) => h("p", { text: warning }))));
}

async function base64(blob) {
  const reader = new FileReader();
  return new Promise((done, fail) => {
    reader.addEventListener("load", () => done(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => fail(reader.error));
    reader.readAsDataURL(blob);
  });
}

function time(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} minutes` : `${shown(seconds / 3600, 2)} hours`;
}
