// Browser storage, lasting or per tab. If the browser refuses it, pages start with defaults and all else works.
"use strict";

function keeper(place) {
  return {
    get(name) {
      try {
        return place().getItem(name);
      } catch {
        return null;
      }
    },
    set(name, value) {
      try {
        place().setItem(name, value);
      } catch { /* refused, or full */ }
    },
    forget(name) {
      try {
        place().removeItem(name);
      } catch { /* nothing is there */ }
    },
  };
}
const inBrowser = keeper(() => localStorage);
const inTab = keeper(() => sessionStorage);
