// Uploads documents by the API, and fills the source form from a found folder.
"use strict";

function bodyOf(form) {
  const data = new FormData(form);
  const tags = String(data.get("tags") ?? "").split(",").map((tag) => tag.trim()).filter(Boolean);
  data.delete("tags");
  for (const name of ["project", "title"]) if (!String(data.get(name)).trim()) data.delete(name);
  if (data.has("file")) {
    for (const tag of tags) data.append("tags", tag);
    return { body: data };
  }
  return { body: JSON.stringify({ ...Object.fromEntries(data), tags }), headers: { "Content-Type": "application/json" } };
}

async function handIn(form) {
  const told = form.querySelector(".told");
  const button = form.querySelector("button");
  button.ariaDisabled = "true"; // and keeps the focus
  told.className = "told small muted";
  told.textContent = "Reading it …";
  try {
    const answer = await fetch(form.dataset.handIn, { method: "POST", ...bodyOf(form) });
    if (!answer.ok) throw new Error(await reason(answer));
    const upload = await answer.json();
    const sections = `${upload.sections} section${upload.sections === 1 ? "" : "s"}`;
    told.className = "told small good";
    told.textContent = `${upload.title || upload.filename}: ${upload.duplicate ? "was there already, " : ""}${sections}. ${upload.note}`;
    form.reset();
    htmx.trigger(document.body, "toast", { text: "Handed in." });
  } catch (problem) {
    told.className = "told small bad";
    told.textContent = problem instanceof TypeError ? "The server cannot be reached. Is it running?" : problem.message;
  } finally {
    button.ariaDisabled = null;
  }
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-hand-in]")) return;
  event.preventDefault();
  handIn(event.target);
});

document.addEventListener("click", (event) => {
  const found = event.target.closest("[data-add-logs]");
  if (!found) return;
  document.getElementById("source-place").value = found.dataset.addLogs;
  document.getElementById("source-kind").value = "claude_logs";
  document.getElementById("source-save").focus();
});
