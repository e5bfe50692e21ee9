// Selection of episodes, and the focus after the list was replaced.
"use strict";

(() => {
  const boxes = () => [...document.querySelectorAll("#chosen .pick")];

  function count() {
    const all = boxes();
    const picked = all.filter((box) => box.checked).length;
    const whole = document.getElementById("pick-all");
    if (!whole) return;
    whole.checked = picked > 0 && picked === all.length;
    whole.indeterminate = picked > 0 && picked < all.length;
    document.getElementById("picked").textContent = picked ? `${picked} chosen` : "none chosen";
    for (const button of document.querySelectorAll("[data-bulk]")) button.disabled = picked === 0;
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "pick-all") for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.id === "pick-all" || event.target.matches(".pick")) count();
  });

  // Enter in a field would submit these forms, which have no address.
  document.addEventListener("submit", (event) => {
    if (event.target.id === "supersede" || event.target.id === "chosen") event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.matches("#bulk-tag, #bulk-reason")) return;
    event.preventDefault();
    event.target.closest("details").querySelector("button").click();
  });

  // Every button of an episode's page replaces it, with all other forms.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target?.id !== "episode") return;
    const lost = unsavedForms().filter((form) => form !== event.detail.elt.form).map((form) => form.dataset.unsaved);
    if (lost.length && !confirm(`What you typed under ${lost.join(" and ")} is not saved. Go on without it?`)) event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const panel = event.target.closest?.("details.panel[open]");
    if (!panel) return;
    panel.open = false;
    panel.querySelector("summary").focus();
  });

  // After a deletion the list reloads; during a selection, only the count.
  const drawsItself = (event) => event.detail.requestConfig?.elt.id === "list-again";
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!drawsItself(event) || !document.querySelector("#chosen :is(.pick:checked, .panel[open], :focus)")) return;
    event.detail.target = document.getElementById("in-all");
    event.detail.selectOverride = "#in-all";
  });

  // Undo keeps the current selection, input and open details.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.requestConfig?.elt.id !== "list-undone") return;
    const picked = new Set(boxes().filter((box) => box.checked).map((box) => box.value));
    const tag = document.getElementById("bulk-tag")?.value ?? "";
    const unfolded = [...document.querySelectorAll("#chosen .panel[open]")].map((panel) => `#${panel.id}`);
    document.addEventListener("htmx:afterSwap", () => {
      for (const box of boxes()) box.checked = picked.has(box.value);
      for (const panel of unfolded) document.querySelector(panel)?.setAttribute("open", "");
      const field = document.getElementById("bulk-tag");
      if (field) field.value = tag;
    }, { once: true });
  });

  document.addEventListener("htmx:afterSettle", (event) => {
    count();
    const drawn = event.detail.target?.id;
    if (drawn !== "episodes" && drawn !== "episode") return;
    const focused = document.activeElement;
    if (focused === document.body || focused.disabled) {
      document.querySelector(`#${drawn} [tabindex='-1']`)?.focus({ preventScroll: drawsItself(event) });
    }
  });
  document.addEventListener("DOMContentLoaded", count);

  const filters = document.getElementById("filters");
  filters?.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) {
      if (value === "" || (name === "status" && value === "active")) event.formData.delete(name);
    }
  });
})();
