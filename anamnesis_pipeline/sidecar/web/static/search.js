// Recent searches, stored only in this browser.
"use strict";

(() => {
  const KEY = "recent-searches";
  const MOST = 10;
  const section = document.getElementById("recent");
  const list = section.querySelector("ul");

  function stored() {
    try {
      const held = JSON.parse(inBrowser.get(KEY));
      return Array.isArray(held) ? held.filter((each) => typeof each === "string") : [];
    } catch {
      return [];
    }
  }

  function show(queries) {
    list.replaceChildren(
      ...queries.map((query) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.className = "tag";
        link.href = `/dashboard/search?q=${encodeURIComponent(query)}`;
        link.textContent = query.length > 60 ? `${query.slice(0, 60)}…` : query;
        item.append(link);
        return item;
      }),
    );
    section.querySelector("[data-none]").hidden = queries.length > 0;
    section.querySelector("[data-clear]").hidden = queries.length === 0;
  }

  let queries = stored();
  const asked = section.dataset.query;
  if (asked) {
    queries = [asked, ...queries.filter((query) => query !== asked)].slice(0, MOST);
    inBrowser.set(KEY, JSON.stringify(queries));
  }
  show(queries);
  section.querySelector("[data-clear]").addEventListener("click", () => {
    inBrowser.forget(KEY);
    show([]);
    document.getElementById("q").focus();
  });

  // The URL omits blank fields and defaults.
  document.getElementById("search").addEventListener("formdata", (event) => {
    const defaults = { mode: "hybrid", profile: "default", top: "10" };
    for (const [name, value] of [...event.formData]) {
      if (value === "" || defaults[name] === value) event.formData.delete(name);
    }
  });
})();
