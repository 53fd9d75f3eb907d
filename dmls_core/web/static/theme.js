// Runs before the first paint: apply the theme that the user chose in Airflow, which stores it for this origin.
// Without a choice, the style sheet follows the system.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    return;
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
addEventListener("storage", (event) => {
  if (event.key !== "theme") return;
  if (event.newValue === "light" || event.newValue === "dark") document.documentElement.dataset.theme = event.newValue;
  else delete document.documentElement.dataset.theme;
});
