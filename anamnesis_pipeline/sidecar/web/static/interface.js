// Swagger UI takes its dark colours from a class of the document.
const root = document.documentElement;
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const followTheme = () => root.classList.toggle("dark-mode", root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);
followTheme();
darkSystem.addEventListener("change", followTheme);
new MutationObserver(followTheme).observe(root, { attributes: true, attributeFilter: ["data-theme"] });

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger",
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  deepLinking: true,
});
