// Dialogs: `button[data-dialog]` opens one by its ID, a form in it does its work and closes it.
import { ApiError, toast } from "./app.js";
import { write } from "./dom.js";

/**
 * Handle the dialogs in `forms`: ID -> function of the form's data and the form; the page is reloaded after it.
 * `openers`: ID -> function of the dialog and its button, called when it opens.
 */
export function handleDialogs(forms, openers = {}) {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-dialog]");
    if (!(button?.dataset.dialog in forms)) return;
    const dialog = document.getElementById(button.dataset.dialog);
    for (const problem of dialog.querySelectorAll(".problem")) problem.hidden = true;
    dialog.showModal();
    try {
      await openers[dialog.id]?.(dialog, button);
    } catch (error) {
      toast(error.message, "bad");
    }
  });

  for (const dialog of document.querySelectorAll("dialog")) {
    if (!(dialog.id in forms)) continue;
    dialog.querySelector("button[data-close]").addEventListener("click", () => dialog.close());
    for (const form of dialog.querySelectorAll("form")) {
      form.addEventListener("submit", (event) => submit(event, dialog, forms[dialog.id]));
    }
  }
}

async function submit(event, dialog, work) {
  event.preventDefault();
  const form = event.target;
  const problem = form.querySelector(".problem");
  event.submitter.disabled = true;
  try {
    await work(new FormData(form), form);
    dialog.close();
    setTimeout(() => location.reload(), 900);
  } catch (error) {
    const problems = error instanceof ApiError ? (error.problem.problems ?? []) : [];
    write(problem, problems.length ? problems.map(describe).join("\n") : error.message);
    problem.hidden = false;
  } finally {
    event.submitter.disabled = false;
  }
}

/** Describe an error with its line. */
function describe(problem) {
  const line = problem.line ? `line ${problem.line}: ` : "";
  const rest = [problem.found && `found ${problem.found}`, problem.hint].filter(Boolean).join("; ");
  return `${line}${problem.key ? `${problem.key}: ` : ""}${problem.message}${rest ? ` (${rest})` : ""}`;
}
