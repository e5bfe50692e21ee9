// Loaded before the first paint, so that the chosen colours apply from the start.
const chosen = inBrowser.get("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
