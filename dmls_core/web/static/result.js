// A result: examples behind the cells of the confusion matrix, and the trials that a chart selects.

for (const button of document.querySelectorAll("[data-cell]")) {
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    for (const other of document.querySelectorAll("[data-cell]")) {
      const shown = other === button && open;
      other.setAttribute("aria-expanded", shown);
      document.getElementById(other.getAttribute("aria-controls")).hidden = !shown;
    }
  });
}

// Mark the trials in the leaderboard that are selected on the axes of a chart.
document.addEventListener("trialsselected", ({ detail }) => {
  const numbers = new Set(detail.map(String));
  for (const row of document.querySelectorAll("[data-trial]")) row.classList.toggle("selected", numbers.has(row.dataset.trial));
});
