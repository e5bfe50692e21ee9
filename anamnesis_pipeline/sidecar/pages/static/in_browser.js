// What the browser keeps for its reader. Where it may keep nothing, every page begins anew, and all else works.
"use strict";

const inBrowser = {
  get(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(name, value);
    } catch { /* refused, or full */ }
  },
  forget(name) {
    try {
      localStorage.removeItem(name);
    } catch { /* nothing is there */ }
  },
};
