// What every page does: times in the reader's zone, shortcuts, dialogs, copying, toasts with undo, problems in words.
"use strict";

const TOAST_MS = 4_000;
const LOOK_MS = 1_000;
const AWAY = "The server cannot be reached. Is it running?";
const UNDO_MS = 10_000; // as long as the server keeps what can be taken back

const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function localTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    element.title = element.textContent;
    element.textContent = zone.format(at);
  }
}

const toasts = document.getElementById("toasts");
let focusedBefore = null;
toasts.addEventListener("focusin", (event) => {
  if (!toasts.contains(event.relatedTarget)) focusedBefore = event.relatedTarget;
});

function shownToast(text, bad) {
  const shown = document.createElement("div");
  shown.className = bad ? "toast bad" : "toast";
  const words = document.createElement("span");
  words.textContent = text;
  shown.append(words);
  toasts.append(shown);
  return shown;
}

function removeToast(shown) {
  const hadFocus = shown.contains(document.activeElement);
  shown.remove();
  if (hadFocus) (focusedBefore?.isConnected ? focusedBefore : document.getElementById("main")).focus({ preventScroll: true });
}

// Goes after a while, yet not from under a pointer or a focus.
function goAfter(shown, ms) {
  setTimeout(() => (shown.matches(":hover, :focus-within") ? goAfter(shown, LOOK_MS) : removeToast(shown)), ms);
}

function toast(text, { undo = null, bad = false } = {}) {
  const shown = shownToast(text, bad);
  if (undo) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Undo";
    button.title = "u, Ctrl Z";
    button.dataset.undo = undo;
    button.addEventListener("click", async () => {
      const answer = await fetched(undo, { method: "POST" });
      if (!answer) return; // told; the button stays, to be pressed again
      if (answer.status === 503) return toast(await reason(answer), { bad: true }); // likewise
      removeToast(shown);
      if (answer.ok) document.body.dispatchEvent(new CustomEvent("undone"));
      toast(answer.ok ? "Undone." : await reason(answer), { bad: !answer.ok });
    });
    shown.append(button);
  }
  goAfter(shown, undo ? UNDO_MS : bad ? 2 * TOAST_MS : TOAST_MS);
}

// What asks again and again tells once that it gets no answer, until it gets one.
let lasting = null;
function tellLastingly(text) {
  if (lasting?.textContent === text) return;
  lasting?.remove();
  lasting = text ? shownToast(text, true) : null;
}

// What the server answers; null where there is none, which is told.
async function fetched(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    toast(AWAY, { bad: true });
    return null;
  }
}

async function reason(answer) {
  try {
    return (await answer.json()).detail;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

function logIn() {
  location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
}

function asksByItself(element) {
  return Boolean(element.getAttribute("hx-trigger")?.includes("every"));
}

function tellProblem(element, text) {
  if (asksByItself(element)) tellLastingly(text);
  else toast(text, { bad: true });
}

document.addEventListener("toast", (event) => toast(event.detail.text, event.detail));
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) return logIn();
  let told = `The server answered ${event.detail.xhr.status}.`;
  try {
    told = JSON.parse(event.detail.xhr.responseText).detail;
  } catch { /* no problem in words: the status has to do */ }
  tellProblem(event.detail.elt, told);
});
document.addEventListener("htmx:sendError", (event) => tellProblem(event.detail.elt, AWAY));
document.addEventListener("htmx:afterRequest", (event) => {
  if (!event.detail.successful) return;
  tellLastingly("");
  for (const each of toasts.querySelectorAll("[data-undo]")) { // a button of the page took back the same
    if (each.dataset.undo === event.detail.requestConfig.path) removeToast(each.closest(".toast"));
  }
});
document.addEventListener("htmx:beforeRequest", (event) => {
  // A page that nobody sees asks for nothing by itself.
  if (document.hidden && asksByItself(event.detail.elt)) event.preventDefault();
});
document.addEventListener("htmx:load", (event) => localTimes(event.detail.elt));

// Ask before what cannot be undone: hx-confirm uses the browser's own dialog, which keyboards and screen readers know.

document.addEventListener("click", async (event) => {
  const opener = event.target.closest("[data-open]");
  if (opener) document.getElementById(opener.dataset.open).showModal();
  const copier = event.target.closest("[data-copy]");
  if (copier) {
    const from = document.querySelector(copier.dataset.copy);
    try {
      await navigator.clipboard.writeText(from.value ?? from.textContent);
      toast("Copied.");
    } catch {
      toast("The browser does not let this page copy.", { bad: true });
    }
  }
  if (event.target.closest("[data-theme-toggle]")) {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    inBrowser.set("theme", root.dataset.theme);
    document.dispatchEvent(new CustomEvent("themed"));
  }
});

// A form with data-unsaved, its name, is asked about before a key or a link that leads away loses what was typed there.
// Those of settings hold what is stored as `was.NAME`: what they show may be typed already.
function isUnsaved(field) {
  return field.matches("input:not([type=hidden]), select, textarea") && field.value !== (field.form.elements[`was.${field.name}`]?.value ?? field.defaultValue);
}

function unsavedForms() {
  return [...document.querySelectorAll("form[data-unsaved]")].filter((form) => [...form.elements].some(isUnsaved));
}

window.addEventListener("beforeunload", (event) => {
  if (unsavedForms().length) event.preventDefault();
});

function isTyping(element) {
  const takesLetters = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), textarea, select, [contenteditable]";
  return element.matches(takesLetters);
}

// Single letters may be in the way of speech input: who switches them off keeps /, ? and Esc, and Ctrl Z, since the button
// of an Undo is many Tabs away.
const lettersWanted = document.getElementById("letters");
lettersWanted.checked = inBrowser.get("letters") !== "off";
lettersWanted.addEventListener("change", () => inBrowser.set("letters", lettersWanted.checked ? "on" : "off"));

function undoLast() {
  const last = [...document.querySelectorAll("[data-undo]")].at(-1);
  last?.click();
  return Boolean(last);
}

document.addEventListener("keydown", (event) => {
  const undoes = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key === "z";
  if (undoes && !isTyping(document.activeElement) && undoLast()) event.preventDefault();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && isTyping(document.activeElement)) return document.activeElement.blur();
  if (isTyping(document.activeElement) || document.querySelector("dialog[open]")) return;
  if (event.key === "?") return document.getElementById("shortcuts").showModal();
  const field = document.querySelector(`[data-focus-key="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
    return field.select();
  }
  if (!lettersWanted.checked) return;
  if (event.key === "u") return undoLast();
  const link = document.querySelector(`[data-go-key="${CSS.escape(event.key)}"]`);
  if (link) link.click();
});

document.addEventListener("DOMContentLoaded", () => {
  localTimes(document);
  document.querySelector(".places [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
});
