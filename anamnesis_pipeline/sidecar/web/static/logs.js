// Keeps the service's log up to date while the page is visible.
"use strict";

const EVERY_MS = 2_000;
const MOST_SHOWN = 2_000; // the server's limit

const tail = document.getElementById("tail");
const follow = document.getElementById("tail-follow");
const least = document.getElementById("tail-level");
const state = document.getElementById("tail-state");
const nothing = document.getElementById("tail-empty");
let last = Number(tail.dataset.last);
let asking = false;

function entry(line) {
  const item = document.createElement("div");
  item.className = line.level;
  const at = document.createElement("time");
  at.dateTime = line.at;
  at.title = line.at;
  at.textContent = zone.format(new Date(line.at)); // same format as all other times
  const level = document.createElement("b");
  level.textContent = line.level;
  const logger = document.createElement("i");
  logger.textContent = line.logger;
  const text = document.createElement("span");
  text.textContent = line.text;
  item.append(at, " ", level, " ", logger, " ", text);
  return item;
}

function toEnd() {
  if (follow.checked) tail.scrollTop = tail.scrollHeight;
}

async function more() {
  if (document.hidden || asking) return;
  asking = true;
  try {
    const answer = await fetch(`/api/logs?since=${last}`);
    if (answer.status === 401) return loginEnded();
    if (!answer.ok) throw new Error(await reason(answer));
    const { lines, last: newest } = await answer.json();
    last = newest;
    state.textContent = "";
    if (!lines.length) return;
    nothing.hidden = true;
    tail.append(...lines.map(entry));
    while (tail.children.length > MOST_SHOWN) tail.firstElementChild.remove();
    toEnd();
  } catch (problem) {
    state.textContent = `Not up to date: ${problem.message}`;
  } finally {
    asking = false;
  }
}

async function keepUp() {
  await more();
  setTimeout(keepUp, EVERY_MS);
}

least.addEventListener("change", () => {
  tail.dataset.least = least.value;
  toEnd();
});
follow.addEventListener("change", toEnd);
document.addEventListener("visibilitychange", more);
toEnd();
keepUp();
