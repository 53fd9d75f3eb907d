// API keys of a job or of a team: create one, show it once, revoke one.
import { api, copy, ready, toast } from "./app.js";
import { handleDialogs } from "./dialogs.js";
import { byId, h, put, write } from "./dom.js";

const { team } = byId("create").dataset;

/** Return the route of the keys that open a job, or without one the whole team. */
const route = (job) => (job ? `/jobs/${encodeURIComponent(team)}/${encodeURIComponent(job)}/keys` : `/teams/${encodeURIComponent(team)}/keys`);

byId("create").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const data = new FormData(form);
  event.submitter.disabled = true;
  try {
    const json = { name: data.get("name"), days: data.get("days") ? Number(data.get("days")) : null };
    const made = await api(route(data.get("job")), { method: "POST", json });
    form.elements.name.value = "";
    show(made);
    await refresh();
  } catch (error) {
    toast(error.message, "bad");
  }
  event.submitter.disabled = false;
});

function show(made) {
  put(byId("made"), h("div", { class: "note good" },
    h("p", { text: `Keep the key ${made.name} now: it cannot be shown again.` }),
    h("p", {}, h("code", { id: "key", class: "wrap", text: made.key }), " ",
      h("button", { type: "button", text: "Copy", onclick: () => copy(made.key, made.name) }))));
}

async function refresh() {
  const response = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  byId("keys").replaceWith(page.getElementById("keys"));
  ready();
}

handleDialogs(
  {
    async revoke(data, form) {
      const { key, job } = form.closest("dialog").dataset;
      toast(`Revoked: ${(await api(`${route(job)}/${key}`, { method: "DELETE" })).name}.`);
    },
  },
  {
    revoke(dialog, { dataset }) {
      Object.assign(dialog.dataset, { key: dataset.key, job: dataset.job });
      write(dialog.querySelector("h2 span"), dataset.name);
    },
  },
);
ready();
