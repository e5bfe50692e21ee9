// Shared by all pages: times in the reader's zone, shortcuts, dialogs, copying, toasts with undo, error texts, and
// disabling parts during a request.
"use strict";

const TOAST_MS = 4_000;
const LOOK_MS = 1_000;
const AWAY = "The server cannot be reached. Is it running?";
const UNDO_MS = 10_000; // as long as the server keeps undo data

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

// Remove a toast after a while, but not while it has the pointer or the focus.
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
      if (!answer) return; // reported; the button stays for a retry
      if (answer.status === 503) return toast(await reason(answer), { bad: true }); // likewise
      removeToast(shown);
      if (answer.ok) document.body.dispatchEvent(new CustomEvent("undone"));
      toast(answer.ok ? "Undone." : await reason(answer), { bad: !answer.ok });
    });
    shown.append(button);
  }
  goAfter(shown, undo ? UNDO_MS : bad ? 2 * TOAST_MS : TOAST_MS);
}

// Pollers report a lost connection once, until it is back.
let lasting = null;
function tellLastingly(text) {
  if (lasting?.textContent === text) return;
  lasting?.remove();
  lasting = text ? shownToast(text, true) : null;
}

// Return the server's answer; null after a failure, which is reported.
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

// Unsaved input stays on this page, to be sent again after a login in another tab.
function loginEnded() {
  if (!unsavedForms().length) return logIn();
  const told = "Your login has ended, and nothing was saved. ";
  if ([...document.querySelectorAll(".toast")].some((each) => each.textContent.startsWith(told))) return;
  const link = document.createElement("a");
  link.href = "/login";
  link.target = "_blank";
  link.textContent = "Log in again";
  const shown = shownToast(told, true);
  shown.querySelector("span").append(link, ", then press once more.");
  goAfter(shown, 5 * UNDO_MS);
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
  if (event.detail.xhr.status === 401) return loginEnded();
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
  for (const each of toasts.querySelectorAll("[data-undo]")) { // undone by a button of the page
    if (each.dataset.undo === event.detail.requestConfig.path) removeToast(each.closest(".toast"));
  }
});
document.addEventListener("htmx:beforeRequest", (event) => {
  // Hidden pages do not poll.
  if (document.hidden && asksByItself(event.detail.elt)) event.preventDefault();
});

// A polled part is not replaced while an element in it is pressed: the next poll comes soon. Otherwise scroll
// positions, open details and the focus are restored.
function named(element) {
  return element.id || element.ariaLabel || element.getAttribute("href") || element.textContent;
}

function keepPlaces(part) {
  const focused = [...part.querySelectorAll(":focus")], unfolded = [...part.querySelectorAll("details[open]")];
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => [each, each.scrollLeft]);
  const inPlaceOf = (old) => [...part.querySelectorAll(old.localName)].find((each) => named(each) === named(old));
  part.addEventListener("htmx:afterSwap", () => {
    for (const each of unfolded) inPlaceOf(each)?.setAttribute("open", "");
    for (const [each, left] of scrolled) inPlaceOf(each)?.scrollTo({ left });
    for (const each of focused) inPlaceOf(each)?.focus({ preventScroll: true });
  }, { once: true });
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const { requestConfig, target, shouldSwap } = event.detail;
  if (!shouldSwap || !requestConfig || !asksByItself(requestConfig.elt)) return;
  if (target.querySelector(":active, .htmx-request")) event.detail.shouldSwap = false;
  else keepPlaces(target);
});

// A part that a request replaces is inert until the answer: input meanwhile would be lost. The pressed button keeps the
// focus, for screen readers, and ignores further clicks.
const KEEPS_UP = /\b(every|load|toast)\b/; // triggers of automatic requests: no user waits for these
const holds = new WeakMap(); // request -> function that releases its part

function replaces({ elt, target }) {
  const swap = elt.closest("[hx-swap]")?.getAttribute("hx-swap");
  return target.contains(elt) && swap !== "none" && !KEEPS_UP.test(elt.getAttribute("hx-trigger") ?? "");
}

// Return all of a part except the path to one element and the waiting messages.
function besides(kept, part) {
  const others = [];
  for (let at = kept; at !== part; at = at.parentElement) others.push(...[...at.parentElement.children].filter((each) => each !== at));
  return others.filter((each) => !each.matches(".waits"));
}

function hold(part, button) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const held = (focused && focused === button ? besides(button, part) : [part]).filter((each) => !each.inert);
  for (const each of held) each.inert = true;
  part.ariaBusy = "true";
  return () => {
    for (const each of held) each.inert = false;
    part.ariaBusy = null;
    // Inert elements move the focus to an ancestor; a focus elsewhere was moved by the user, and stays.
    if (document.activeElement.contains(part)) focused?.focus({ preventScroll: true });
  };
}

document.addEventListener("htmx:beforeSend", (event) => {
  const { elt, target, xhr, requestConfig } = event.detail;
  const button = requestConfig.triggeringEvent?.submitter ?? (elt.matches("button") ? elt : null);
  const letPartGo = replaces(event.detail) ? hold(target, button) : null;
  if (button) button.ariaDisabled = "true";
  holds.set(xhr, () => {
    letPartGo?.();
    if (button) button.ariaDisabled = null;
  });
});
// Release before the swap, so that htmx finds the focus and restores it in the new content.
for (const over of ["htmx:beforeSwap", "htmx:afterRequest"]) {
  document.addEventListener(over, ({ detail }) => {
    holds.get(detail.xhr)?.();
    holds.delete(detail.xhr);
  });
}
document.addEventListener("click", (event) => { // Enter in a field clicks its form's button
  if (!event.target.closest("[aria-disabled=true]")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);
document.addEventListener("htmx:load", (event) => localTimes(event.detail.elt));

// Confirm irreversible actions: hx-confirm uses the browser's dialog, which works with keyboards and screen readers.

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

// Warn before a key or a link loses the input of a form with data-unsaved (its name). Forms of settings hold stored
// values as `was.NAME`: their initial values may be unsaved input.
function isUnsaved(field) {
  const stored = field.form.elements[`was.${field.name}`];
  if (stored) return field.value !== stored.value;
  if (field.matches("[type=checkbox], [type=radio]")) return field.checked !== field.defaultChecked;
  if (field.matches("select")) return field.selectedIndex !== Math.max(0, [...field.options].findIndex((each) => each.defaultSelected));
  return field.matches("input:not([type=hidden]), textarea") && field.value !== field.defaultValue;
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

// Single-letter shortcuts may disturb speech input: when switched off, /, ? and Esc remain, and Ctrl Z, since an Undo
// button is many Tabs away.
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
  // Typing in an inert field is no shortcut.
  if (isTyping(document.activeElement) || document.querySelector("dialog[open], [aria-busy=true]")) return;
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
