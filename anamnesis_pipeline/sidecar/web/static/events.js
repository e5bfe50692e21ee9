// Live events: rows are added, a continued row is updated, and the list shows when it is not live.
const SILENT_MS = 5_000; // the server sends a heartbeat every second
const AGAIN_MS = 10_000;

const table = document.getElementById("events");
const body = document.getElementById("rows");
const badge = document.getElementById("live-badge");
const words = document.getElementById("live-text");
const pause = document.getElementById("pause");
const nothing = document.getElementById("nothing");
const most = Number(table.dataset.most);
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const number = new Intl.NumberFormat("en");

let last = Number(table.dataset.last);
let source = null;
let arriving = []; // rows of a batch, complete with the next heartbeat
let held = []; // rows received while paused, limited to the number shown
let heardAt = 0;
let isLive = false;
let waiting = null;

function told(kind, label, text) {
  badge.className = `badge ${kind}`;
  badge.textContent = label;
  words.textContent = text;
}

function cell(row, className, ...content) {
  const made = document.createElement("td");
  made.className = className;
  made.append(...content);
  row.append(made);
  return made;
}

function rowOf(event) {
  const row = document.createElement("tr");
  row.dataset.number = event.number;
  const at = document.createElement("time");
  at.dateTime = at.title = event.at;
  at.textContent = exact.format(new Date(event.at));
  cell(row, "when", at);
  const kind = document.createElement("span");
  kind.className = `badge kind-${event.kind}`;
  kind.textContent = event.label;
  const times = document.createElement("span");
  times.className = "muted";
  times.textContent = event.events > 1 ? ` ×\u00a0${number.format(event.events)}` : "";
  cell(row, "", kind, times);
  cell(row, "number", number.format(event.episodes));
  cell(row, "project", event.project || "–").title = event.project;
  let episode = "–";
  if (event.episode_id) {
    episode = document.createElement("a");
    episode.className = "mono";
    episode.href = event.link;
    episode.textContent = event.episode_id;
  }
  const place = cell(row, "", episode);
  if (event.all) {
    const others = document.createElement("a");
    others.href = event.all;
    others.textContent = `first of ${number.format(event.episodes)}`;
    place.append(" ", others);
  }
  cell(row, "number", String(event.process));
  return row;
}

function show(event) {
  const row = rowOf(event);
  const before = body.querySelector(`[data-number="${event.number}"]`);
  if (before) {
    const focused = before.contains(document.activeElement);
    before.replaceWith(row);
    if (focused) row.querySelector("a")?.focus();
    return;
  }
  row.classList.add("new");
  nothing.hidden = true;
  body.prepend(row);
  while (body.children.length > most) body.lastElementChild.remove();
}

function isPaused() {
  return pause.getAttribute("aria-pressed") === "true";
}

function take(event) {
  if (!isPaused()) return show(event);
  held = [...held.filter((each) => each.number !== event.number), event].slice(-most);
  tell();
}

function tell() {
  const since = held.length ? `${number.format(held.length)} new row${held.length === 1 ? "" : "s"} since.` : "";
  if (isPaused()) told("warn", "Paused", since || "What happens meanwhile is shown when you go on.");
  else if (isLive) told("good", "Live", "The newest come first.");
  else told("", "Connecting", "New events appear automatically.");
}

function disconnect() {
  clearTimeout(waiting);
  source?.close();
  source = null;
  arriving = []; // an incomplete batch is requested again
  isLive = false;
}

// A browser allows six connections per host: those of hidden pages would block others from loading.
function connect() {
  disconnect();
  if (document.hidden) return;
  const address = new URL(table.dataset.stream, location.href);
  address.searchParams.set("after", last);
  source = new EventSource(address);
  source.addEventListener("open", () => {
    heardAt = Date.now(); // the first heartbeat follows the store's answer
    arriving = [];
  });
  source.addEventListener("row", (message) => {
    heardAt = Date.now();
    arriving.push(JSON.parse(message.data));
  });
  source.addEventListener("heartbeat", heartbeat);
  source.addEventListener("problem", (message) => again(JSON.parse(message.data).error));
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) refused();
    else lost();
  });
}

function heartbeat(message) {
  heardAt = Date.now();
  last = Math.max(last, Number(message.lastEventId));
  for (const event of arriving.splice(0)) take(event);
  if (isLive) return;
  isLive = true;
  tell();
}

// A stream does not report why it was refused; without a session, redirect to the login.
async function refused() {
  const asked = source;
  lost();
  const looking = new AbortController();
  const late = setTimeout(() => looking.abort(), SILENT_MS);
  const status = await fetch(asked.url, { signal: looking.signal }).then((answer) => answer.status, () => 0);
  clearTimeout(late);
  looking.abort();
  if (source !== asked) return; // outdated by a newer stream
  if (status === 401) return loginEnded();
  again("The server refused; it may be busy with other pages.");
}

function again(why) {
  disconnect();
  told("bad", "Not live", `${why} Trying again soon.`);
  waiting = setTimeout(connect, AGAIN_MS);
}

function lost() {
  isLive = false;
  if (!isPaused()) told("bad", "Not live", "The server does not answer; the list continues when it does.");
}

pause.addEventListener("click", () => {
  const pausing = !isPaused();
  pause.setAttribute("aria-pressed", String(pausing));
  pause.textContent = pausing ? "Go on" : "Pause";
  for (const event of held) show(event); // empty unless paused
  held = [];
  tell();
});

document.addEventListener("visibilitychange", () => {
  connect();
  tell();
});

for (const at of body.querySelectorAll("time")) {
  at.title = at.textContent;
  at.textContent = exact.format(new Date(at.dateTime)); // with seconds, unlike elsewhere
}
setInterval(() => {
  if (source?.readyState !== EventSource.OPEN || Date.now() - heardAt <= SILENT_MS) return;
  lost();
  connect(); // still open but silent after sleep, or lost by a proxy
}, SILENT_MS);
connect();
