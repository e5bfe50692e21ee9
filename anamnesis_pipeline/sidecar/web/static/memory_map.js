// Draws the memory map: all points into one image, which takes a few milliseconds for 100,000.
const SIDE = 65_535;
const OTHERS = 11; // shared colour of the remaining projects
const CELLS = 128; // per side, to find the point under the pointer
const NEAR_PX = 12;
const MIDDLE_PX = 200; // keyboard users get the point nearest the centre
const CLICK_PX = 5; // less movement counts as a click
const FEW = 5_000; // up to this number of points, each is a smooth disc
const MOST_ZOOM = 400;
const ASK_AFTER_MS = 120;
const MOST_KNOWN = 500;

const canvas = document.getElementById("map");
const context = canvas.getContext("2d", { alpha: false });
const wait = document.getElementById("map-wait");
const about = document.getElementById("map-told");
const foundText = document.getElementById("map-found");
const hits = document.getElementById("map-hits");
const legend = [...document.querySelectorAll("[data-group]")];

let xs = new Uint16Array(0); // of each point
let ys = new Uint16Array(0);
let groupOf = new Uint16Array(0);
let groups = [];
let cellStart = new Uint32Array(CELLS * CELLS + 1);
let cellPoints = new Uint32Array(0);
let view = { x: SIDE / 2, y: SIDE / 2, zoom: 1 }; // centre of the view; zoom 1 fits the whole map
let ratio = 1; // device pixels per CSS pixel
let picture = null;
let colours = [];
let chosen = new Set(); // in the legend; empty: all
let hovered = -1;
let marked = [];
let isWaiting = false;
const known = new Map();

// --- geometry

function perUnit() {
  return (Math.min(canvas.width, canvas.height) / SIDE) * view.zoom;
}

function toUnits(x, y) {
  const scale = perUnit();
  return [view.x + (x * ratio - canvas.width / 2) / scale, view.y + (y * ratio - canvas.height / 2) / scale];
}

function isShown(point) {
  return chosen.size === 0 || chosen.has(Math.min(groupOf[point], OTHERS));
}

function nearest(x, y, within = NEAR_PX) {
  const [atX, atY] = toUnits(x, y);
  const reach = (within * ratio) / perUnit();
  const size = (SIDE + 1) / CELLS;
  const clamp = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(value / size)));
  let best = -1;
  let least = reach * reach;
  for (let row = clamp(atY - reach); row <= clamp(atY + reach); row++) {
    for (let column = clamp(atX - reach); column <= clamp(atX + reach); column++) {
      const cell = row * CELLS + column;
      for (let n = cellStart[cell]; n < cellStart[cell + 1]; n++) {
        const point = cellPoints[n];
        const apart = (xs[point] - atX) ** 2 + (ys[point] - atY) ** 2;
        if (apart < least && isShown(point)) [best, least] = [point, apart];
      }
    }
  }
  return best;
}

function sortIntoCells() {
  const size = (SIDE + 1) / CELLS;
  const cellOf = (point) => Math.floor(ys[point] / size) * CELLS + Math.floor(xs[point] / size);
  cellStart = new Uint32Array(CELLS * CELLS + 1);
  for (let point = 0; point < xs.length; point++) cellStart[cellOf(point) + 1]++;
  for (let cell = 0; cell < CELLS * CELLS; cell++) cellStart[cell + 1] += cellStart[cell];
  const next = cellStart.slice();
  cellPoints = new Uint32Array(xs.length);
  for (let point = 0; point < xs.length; point++) cellPoints[next[cellOf(point)]++] = point;
}

// --- drawing

function packed(text) {
  const probe = document.createElement("canvas").getContext("2d");
  probe.fillStyle = text;
  probe.fillRect(0, 0, 1, 1);
  return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  colours = Array.from({ length: OTHERS + 1 }, (_, n) => packed(style.getPropertyValue(`--m${n}`).trim()));
  colours.push(packed(style.getPropertyValue("--card").trim()));
}

function radius() {
  const base = xs.length > 30_000 ? 1 : xs.length > FEW ? 1.8 : xs.length > 1_000 ? 2.6 : 4;
  const room = Math.min(1, Math.max(0.6, Math.min(canvas.clientWidth, canvas.clientHeight) / 560));
  return Math.min(8, base * room * Math.min(view.zoom, 16) ** 0.35) * ratio;
}

function discOf(size) {
  const offsets = [];
  const most = Math.ceil(size);
  for (let down = -most; down <= most; down++) {
    for (let right = -most; right <= most; right++) {
      if (right * right + down * down <= size * size) offsets.push(down * canvas.width + right);
    }
  }
  return Int32Array.from(offsets);
}

function draw() {
  isWaiting = false;
  if (!canvas.width || !canvas.height) return;
  const size = radius();
  if (xs.length > FEW) drawMany(size);
  else drawFew(size);
  ring(marked, 2.5, size + 4 * ratio);
  if (hovered >= 0) ring([hovered], 2, size + 3 * ratio);
}

function drawFew(size) {
  const style = getComputedStyle(document.documentElement);
  context.fillStyle = style.getPropertyValue("--card");
  context.fillRect(0, 0, canvas.width, canvas.height);
  const scale = perUnit();
  for (let colour = 0; colour <= OTHERS; colour++) {
    if (chosen.size && !chosen.has(colour)) continue;
    context.fillStyle = style.getPropertyValue(`--m${colour}`);
    context.beginPath();
    for (let point = 0; point < xs.length; point++) {
      if (Math.min(groupOf[point], OTHERS) !== colour) continue;
      const x = (xs[point] - view.x) * scale + canvas.width / 2;
      const y = (ys[point] - view.y) * scale + canvas.height / 2;
      context.moveTo(x + size, y);
      context.arc(x, y, size, 0, 7);
    }
    context.fill();
  }
}

function drawMany(size) {
  const { width, height } = canvas;
  if (!picture || picture.width !== width || picture.height !== height) picture = context.createImageData(width, height);
  const pixels = new Uint32Array(picture.data.buffer);
  pixels.fill(colours[OTHERS + 1]);
  const scale = perUnit();
  const disc = discOf(size);
  const edge = Math.ceil(size);
  const left = width / 2 - view.x * scale;
  const top = height / 2 - view.y * scale;
  for (let point = 0; point < xs.length; point++) {
    const x = Math.round(xs[point] * scale + left);
    const y = Math.round(ys[point] * scale + top);
    if (x < edge || y < edge || x >= width - edge || y >= height - edge) continue;
    const colour = Math.min(groupOf[point], OTHERS);
    if (chosen.size && !chosen.has(colour)) continue;
    const at = y * width + x;
    for (let n = 0; n < disc.length; n++) pixels[at + disc[n]] = colours[colour];
  }
  context.putImageData(picture, 0, 0);
}

function ring(points, thick, size) {
  context.strokeStyle = getComputedStyle(canvas).color;
  context.lineWidth = thick * ratio;
  const scale = perUnit();
  for (const point of points) {
    context.beginPath();
    context.arc(
      (xs[point] - view.x) * scale + canvas.width / 2, (ys[point] - view.y) * scale + canvas.height / 2, size, 0, 7,
    );
    context.stroke();
  }
}

function redraw() {
  if (!isWaiting) requestAnimationFrame(draw);
  isWaiting = true;
}

function fit() {
  ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(canvas.clientHeight * ratio);
  redraw();
}

// --- moving

function move(x, y) {
  const scale = perUnit() / ratio;
  view.x = Math.min(SIDE, Math.max(0, view.x - x / scale));
  view.y = Math.min(SIDE, Math.max(0, view.y - y / scale));
  redraw();
}

function zoomBy(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const [beforeX, beforeY] = toUnits(x, y);
  view.zoom = Math.min(MOST_ZOOM, Math.max(0.8, view.zoom * factor));
  const [afterX, afterY] = toUnits(x, y);
  view.x += beforeX - afterX;
  view.y += beforeY - afterY;
  redraw();
}

function showAll() {
  view = { x: SIDE / 2, y: SIDE / 2, zoom: 1 };
  redraw();
}

const STEP_PX = 60;
const KEYS = {
  ArrowLeft: () => move(STEP_PX, 0),
  ArrowRight: () => move(-STEP_PX, 0),
  ArrowUp: () => move(0, STEP_PX),
  ArrowDown: () => move(0, -STEP_PX),
  "+": () => zoomBy(1.5),
  "=": () => zoomBy(1.5),
  "-": () => zoomBy(1 / 1.5),
  0: showAll,
  Enter: () => hovered >= 0 && open(hovered),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
  if (event.key !== "Enter") point(nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, MIDDLE_PX));
});
canvas.addEventListener("focus", () => {
  if (canvas.matches(":focus-visible")) point(nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, MIDDLE_PX));
});
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    zoomBy(Math.exp(-Math.max(-100, Math.min(100, event.deltaY)) / 300), event.offsetX, event.offsetY);
  },
  { passive: false },
);

canvas.addEventListener("blur", () => point(-1)); // its description stays readable

const pointers = new Map();
let travelled = 0;
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, event);
  if (pointers.size === 1) travelled = 0;
});
canvas.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return point(nearest(event.offsetX, event.offsetY));
  const others = [...pointers.values()].filter((each) => each.pointerId !== event.pointerId);
  if (others.length === 1) {
    const apart = (each) => Math.hypot(each.offsetX - others[0].offsetX, each.offsetY - others[0].offsetY);
    zoomBy(apart(event) / Math.max(1, apart(before)), others[0].offsetX, others[0].offsetY);
    travelled = Infinity;
  } else if (!others.length) {
    move(event.offsetX - before.offsetX, event.offsetY - before.offsetY);
    travelled += Math.hypot(event.offsetX - before.offsetX, event.offsetY - before.offsetY);
  }
  pointers.set(event.pointerId, event);
});
for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, (event) => pointers.delete(event.pointerId));
canvas.addEventListener("pointerup", (event) => {
  if (travelled > CLICK_PX || event.button > 1) return;
  const at = nearest(event.offsetX, event.offsetY);
  if (at < 0) return;
  if (event.pointerType === "mouse") open(at, event.button === 1 || event.ctrlKey || event.metaKey);
  else point(at); // touch shows a point first; its link opens it
});
canvas.addEventListener("mousedown", (event) => event.button === 1 && event.preventDefault()); // no autoscroll
canvas.addEventListener("contextmenu", () => {
  pointers.clear(); // a menu may swallow the button's release
  travelled = Infinity;
});
canvas.addEventListener("pointerleave", () => {
  if (hovered < 0) return;
  hovered = -1; // its description and link stay available
  redraw();
});

// --- what a point is

function address(path, fields) {
  const query = new URLSearchParams({ map: canvas.dataset.mark, ...fields });
  if (canvas.dataset.private) query.set("private", "1");
  return `/dashboard/map/${path}?${query}`;
}

function placeOf(point) {
  const group = groups[groupOf[point]];
  return group.start + point - group.first;
}

async function told(point) {
  if (!known.has(point)) {
    if (known.size >= MOST_KNOWN) known.clear();
    const answer = await fetch(address("point", { at: placeOf(point) }));
    known.set(point, answer.ok ? await answer.json() : { problem: await reason(answer) });
  }
  return known.get(point);
}

let asked = null;
function point(at) {
  if (at === hovered) return;
  hovered = at;
  canvas.style.cursor = at < 0 ? "" : "pointer";
  redraw();
  clearTimeout(asked);
  if (at >= 0) asked = setTimeout(() => tell(at), ASK_AFTER_MS);
}

async function tell(at) {
  const found = await told(at).catch(() => ({ problem: AWAY }));
  if (hovered !== at) return;
  about.replaceChildren();
  if (found.problem) {
    about.textContent = found.problem;
    return;
  }
  const link = document.createElement("a");
  link.href = found.link;
  link.textContent = found.summary || "Open it";
  const words = document.createElement("span");
  words.className = "small muted";
  words.textContent = `${found.project || "no project"} · ${found.kind} · ${zone.format(new Date(found.at))}`;
  about.append(link, words);
}

async function open(at, inNewTab = false) {
  const found = await told(at).catch(() => ({ problem: AWAY }));
  if (!found.link) return toast(found.problem, { bad: true });
  if (inNewTab) window.open(found.link, "_blank", "noopener");
  else location.assign(found.link);
}

// --- legend and search

for (const button of legend) {
  button.addEventListener("click", () => {
    const group = Math.min(Number(button.dataset.group), OTHERS);
    if (!chosen.delete(group)) chosen.add(group);
    button.setAttribute("aria-pressed", String(chosen.has(group)));
    point(-1);
    redraw();
  });
}

document.getElementById("map-find").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await fetched(address("found", { q: document.getElementById("map-q").value }));
  if (!answer) return;
  if (!answer.ok) return toast(await reason(answer), { bad: true });
  const found = await answer.json();
  const places = new Set(found.points);
  marked = [];
  for (let at = 0; at < xs.length; at++) if (places.has(placeOf(at))) marked.push(at);
  foundText.textContent = found.told;
  list(found.best);
  redraw();
});

function list(episodes) {
  hits.replaceChildren(...episodes.map(({ link, summary }) => {
    const row = document.createElement("li");
    const opens = document.createElement("a");
    opens.href = link;
    opens.textContent = summary;
    row.append(opens);
    return row;
  }));
}

document.getElementById("map-q").addEventListener("input", (event) => {
  if (event.target.value) return;
  marked = [];
  foundText.textContent = "";
  list([]);
  redraw();
});
document.getElementById("map-in").addEventListener("click", () => zoomBy(1.5));
document.getElementById("map-out").addEventListener("click", () => zoomBy(1 / 1.5));
document.getElementById("map-all").addEventListener("click", showAll);
document.addEventListener("htmx:afterSwap", () => {
  const now = document.getElementById("map-now");
  const isNewer = Boolean(now?.dataset.mark) && now.dataset.mark !== canvas.dataset.mark;
  document.getElementById("map-newer").hidden = !isNewer;
  if (isNewer) document.getElementById("draw-told").replaceChildren(); // its announced map has arrived
});

// --- loading

function take(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  groups = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))).groups;
  const places = new Uint16Array(buffer, 4 + length);
  const count = places.length / 2;
  xs = new Uint16Array(count);
  ys = new Uint16Array(count);
  groupOf = new Uint16Array(count);
  for (let at = 0; at < count; at++) {
    xs[at] = places[2 * at];
    ys[at] = places[2 * at + 1];
  }
  let first = 0;
  groups.forEach((group, n) => {
    group.first = first;
    groupOf.fill(n, first, first + group.count);
    first += group.count;
  });
  sortIntoCells();
}

async function load() {
  try {
    const answer = await fetch(address("points", {}));
    if (!answer.ok) throw new Error(await reason(answer));
    take(await answer.arrayBuffer());
    wait.hidden = true;
    redraw();
  } catch (problem) {
    wait.textContent = `The points could not be loaded: ${problem.message}`;
  }
}

document.addEventListener("themed", () => {
  readColours();
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  redraw();
});
new ResizeObserver(fit).observe(canvas);
readColours();
load();
