// A job's API keys: create one, and show it once. The dialog that revokes one is in job.js.
import { api, copy, ready, toast } from "./app.js";
import { byId, h, put } from "./dom.js";

const { team, name } = byId("job").dataset;
const places = {
  job: `/jobs/${encodeURIComponent(team)}/${encodeURIComponent(name)}/keys`,
  team: `/teams/${encodeURIComponent(team)}/keys`,
};

byId("create").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const data = new FormData(form);
  event.submitter.disabled = true;
  try {
    const json = { name: data.get("name"), days: data.get("days") ? Number(data.get("days")) : null };
    const made = await api(places[data.get("scope")], { method: "POST", json });
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
