// Loaded before anything is drawn, so that the chosen colours are there from the first frame on.
const chosen = inBrowser.get("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
