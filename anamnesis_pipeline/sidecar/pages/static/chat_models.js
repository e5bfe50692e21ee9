// Which model answers: one of a list that comes after the page, the one that was chosen last in a new conversation.
"use strict";

const MODEL_KEY = "chat-model";

document.addEventListener("change", (event) => {
  if (event.target.id === "model") askForName();
  if (event.target.closest("#models")) inBrowser.set(MODEL_KEY, chosenModel());
});
// A new conversation begins with the model that was chosen last; one that is open has its own.
function chooseModel() {
  const last = (!chat.dataset.session && inBrowser.get(MODEL_KEY)) || "";
  const options = [...document.getElementById("model").options];
  const found = last && (options.find((each) => each.value === last) ?? options.find((each) => isNamedBy(each, last)));
  if (found) found.selected = true;
  askForName();
  if (isAny(found)) document.getElementById("model-name").value = JSON.parse(last)[1];
}
function isAny(option) {
  return Boolean(option && "any" in option.dataset);
}
// Whether this is where a model that nobody lists was named, which stands in `kept`.
function isNamedBy(option, kept) {
  if (!kept || !isAny(option)) return false;
  const [[backend, , worker], [keptBackend, , keptWorker]] = [JSON.parse(option.value), JSON.parse(kept)];
  return backend === keptBackend && worker === keptWorker;
}
// A service that lists no models, or not all, is told one by its name.
function askForName() {
  const place = document.getElementById("any-model");
  if (!place) return; // the models are being looked up
  place.hidden = !isAny(document.getElementById("model").selectedOptions[0]);
  document.getElementById("model-name").required = !place.hidden;
}
// [backend, model, server] as JSON; empty: nothing is chosen.
function chosenModel() {
  const select = document.getElementById("model");
  if (!isAny(select.selectedOptions[0])) return select.value;
  const [backend, , worker] = JSON.parse(select.value);
  const name = document.getElementById("model-name").value.trim();
  return name && JSON.stringify([backend, name, worker]);
}
