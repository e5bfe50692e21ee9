// Typing a model name selects its option.
"use strict";

document.addEventListener("input", (event) => {
  if (event.target.id === "other") document.getElementById("model-other").checked = true;
});
