// Model selection: a list that loads after the page; a new conversation starts with the last choice.
"use strict";

const MODEL_KEY = "chat-model";
let chosenBefore = ""; // in the replaced list
let hadFocus = false;

document.addEventListener("change", (event) => {
  if (event.target.id === "model") askForName();
  if (event.target.closest("#models")) inBrowser.set(MODEL_KEY, chosenModel());
});
// A new conversation uses the last chosen model; an open one has its own.
function chosenLast() {
  return (!chat.dataset.session && inBrowser.get(MODEL_KEY)) || "";
}
// Before the list loads, which takes seconds if a server is down.
document.addEventListener("DOMContentLoaded", () => {
  const last = chosenLast();
  if (last) document.getElementById("model").add(new Option(JSON.parse(last)[1], last, true, true));
});
document.addEventListener("htmx:beforeSwap", ({ detail: { target } }) => {
  if (target.id !== "models") return;
  const select = document.getElementById("model");
  chosenBefore = select.selectedIndex > 0 ? chosenModel() || select.value : "";
  hadFocus = target.contains(document.activeElement);
});
document.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
  if (target.id !== "models") return;
  chooseModel();
  if (hadFocus && document.activeElement === document.body) document.getElementById("model").focus();
});
function chooseModel() {
  const last = chosenBefore || chosenLast();
  const options = [...document.getElementById("model").options];
  const found = last && (options.find((each) => each.value === last) ?? options.find((each) => isNamedBy(each, last)));
  if (found) found.selected = true;
  askForName();
  if (isAny(found)) document.getElementById("model-name").value = JSON.parse(last)[1];
}
function isAny(option) {
  return Boolean(option && "any" in option.dataset);
}
// Return whether the unlisted model in `kept` belongs here.
function isNamedBy(option, kept) {
  if (!kept || !isAny(option)) return false;
  const [[backend, , worker], [keptBackend, , keptWorker]] = [JSON.parse(option.value), JSON.parse(kept)];
  return backend === keptBackend && worker === keptWorker;
}
// For a service with an incomplete list, the model can be typed.
function askForName() {
  const place = document.getElementById("any-model");
  if (!place) return; // the list is loading
  place.hidden = !isAny(document.getElementById("model").selectedOptions[0]);
  document.getElementById("model-name").required = !place.hidden;
}
// [backend, model, server] as JSON; empty: no choice.
function chosenModel() {
  const select = document.getElementById("model");
  if (!isAny(select.selectedOptions[0])) return select.value;
  const [backend, , worker] = JSON.parse(select.value);
  const name = document.getElementById("model-name").value.trim();
  return name && JSON.stringify([backend, name, worker]);
}
