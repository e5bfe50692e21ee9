// Keys of the page Review, and the focus after a decision.
"use strict";

(() => {
  const KEYS = { a: "accept", e: "edit", r: "reject", u: "undo" };
  const proposals = () => [...document.querySelectorAll(".proposal")];
  const current = () => document.activeElement.closest(".proposal");
  let place = 0; // of the proposal that has the focus, or had it when the list was replaced

  function focusAt(number) {
    const all = proposals();
    place = Math.max(0, Math.min(number, all.length - 1));
    const wanted = all[place] ?? document.getElementById("main");
    wanted.focus();
    wanted.scrollIntoView({ block: "nearest" });
  }

  // Press what the focused proposal has for it. Without one, show which it would be.
  function act(name) {
    const of = current();
    if (!of) return name === "undo" ? false : (focusAt(place), true);
    const found = of.querySelector(`[data-act=${name}]`);
    if (!found) return name !== "undo";
    if (found.matches("details")) {
      found.open = true;
      found.querySelector("textarea, input:not([type=hidden])").focus();
    } else found.click();
    return true;
  }

  // Before the shortcuts of all pages: here some letters mean something else.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !lettersWanted.checked) return;
    if (isTyping(document.activeElement) || document.querySelector("dialog[open], [aria-busy=true]")) return;
    const step = { j: 1, k: -1 }[event.key];
    const at = proposals().indexOf(current());
    const isDone = step ? (focusAt(at < 0 ? place : at + step), true) : event.key in KEYS && act(KEYS[event.key]);
    if (!isDone) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  }, true);

  document.addEventListener("keydown", (event) => {
    const unfolded = event.key === "Escape" && event.target.closest?.("details.act[open]");
    if (!unfolded) return;
    unfolded.open = false;
    unfolded.closest(".proposal").focus();
  });

  // Every form replaces the list, with what is typed in others.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const typed = [...document.querySelectorAll(".act textarea, .act input:not([type=hidden])")];
    const lost = typed.filter((field) => isUnsaved(field) && field.form !== event.detail.elt);
    if (lost.length && !confirm("What you typed for another proposal is not saved. Go on without it?")) event.preventDefault();
    else place = Math.max(0, proposals().indexOf(event.detail.elt.closest(".proposal") ?? current() ?? proposals()[place]));
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target?.id === "review" && document.activeElement === document.body) focusAt(place);
  });

  const filters = document.getElementById("filters");
  filters.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) {
      if (value === "" || (name === "state" && value === "open") || (name === "confidence" && value === "0")) event.formData.delete(name);
    }
  });
  filters.elements.confidence.addEventListener("input", (event) => {
    filters.querySelector("output").textContent = event.target.value;
  });
})();
