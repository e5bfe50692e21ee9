// Who types a model means it: its choice is made with the first letter.
"use strict";

document.addEventListener("input", (event) => {
  if (event.target.id === "other") document.getElementById("model-other").checked = true;
});
