// Episodes over time: growth of the memory, and a strip for selecting a range of days (UTC).
"use strict";

const DAY_S = 86_400;
const STEPS = { 1: "by day", 7: "by week", 30: "by month", 365: "by year", 3650: "by decade" }; // as on the server
const LEAST_BAR_PX = 3;
const SIDE_PX = 52; // axis width
const DAYS_APART = [1, 2, 3, 4, 5, 7, 10, 15, 30, 60, 90, 120, 180, 365, 730, 1825, 3650, 9125, 18250, 36500];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function axis(size) {
  const grid = { stroke: colour("line"), width: 1 };
  return { stroke: colour("soft"), grid, ticks: grid, ...(size ? { size } : {}) };
}

const dayWords = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" });

// The year is below its first day; if days are years apart, only the year is shown.
function dates(_, moments, __, ___, apart) {
  let before = null;
  return moments.map((at) => {
    const day = new Date(at * 1000);
    const year = day.getUTCFullYear();
    if (apart >= 365 * DAY_S) return String(year);
    const words = dayWords.format(day) + (year === before ? "" : `\n${year}`);
    before = year;
    return words;
  });
}

function axes(two) {
  const short = (_, values) => values.map((value) => (value >= 10_000 ? `${value / 1000}k` : value));
  const left = { ...axis(SIDE_PX), values: short };
  const below = { ...axis(), values: dates, incrs: DAYS_APART.map((days) => days * DAY_S) };
  return [below, left, ...(two ? [{ ...axis(SIDE_PX), values: short, scale: "all", side: 1, grid: { show: false } }] : [])];
}

function bars(label) {
  const paths = uPlot.paths.bars({ size: [0.8, 40], align: 1 });
  return { label, stroke: colour("two"), fill: colour("two"), width: 0, paths, points: { show: false } };
}

function frame(element, days, height, step) {
  // uPlot extends a single day far beyond it.
  const range = (_, low, high) => [low, (days.length === 1 ? low : high) + step * DAY_S];
  return {
    width: element.clientWidth, height, tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    legend: { show: false }, scales: { x: { time: true, range }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
  };
}

function growth(element, days, counts, step) {
  let total = 0;
  const totals = counts.map((count) => (total += count));
  const options = {
    ...frame(element, days, 220, step), axes: axes(true), legend: { show: true, live: true }, cursor: { y: false },
    series: [
      { label: "Day", value: "{YYYY}-{MM}-{DD}" }, bars("New"),
      { label: "All", scale: "all", stroke: colour("one"), width: 2, paths: uPlot.paths.stepped({ align: 1, extend: true }), points: { show: false } },
    ],
  };
  options.height -= 34; // height of the legend
  options.scales.all = { range: (_, low, high) => [0, Math.max(1, high)] };
  const newest = (plot) => plot.legend.idx ?? plot.setLegend({ idx: days.length - 1 }, false); // without a pointer
  options.hooks = { ready: [newest], setLegend: [newest] };
  return new uPlot(options, [days, counts, totals], element);
}

function strip(element, days, counts, step) {
  const form = document.getElementById(element.dataset.form);
  const dayOf = (at) => new Date(at * 1000).toISOString().slice(0, 10);
  const numberOf = (field) => (field.value ? Date.parse(`${field.value}T00:00:00Z`) / 1000 : null);
  let drawn = false;

  function chosen(plot) {
    if (!drawn || plot.select.width < 2) return;
    const [from, to] = [plot.select.left, plot.select.left + plot.select.width].map((left) => plot.posToVal(left, "x"));
    form.elements.since.value = dayOf(Math.floor(from / DAY_S) * DAY_S);
    form.elements.until.value = dayOf(Math.ceil(to / DAY_S) * DAY_S);
    form.requestSubmit();
  }

  function shown(plot) {
    const [from, to] = [numberOf(form.elements.since), numberOf(form.elements.until)];
    if (from !== null || to !== null) {
      const { min, max } = plot.scales.x;
      const left = plot.valToPos(Math.max(min, from ?? min), "x");
      const right = plot.valToPos(Math.min(max, to ?? max), "x");
      plot.setSelect({ left, top: 0, width: Math.max(0, right - left), height: plot.over.clientHeight }, false);
    }
    drawn = true;
  }

  const options = {
    ...frame(element, days, 150, step), axes: axes(false), cursor: { y: false, drag: { x: true, y: false, setScale: false } },
    series: [{}, bars("Episodes")], hooks: { setSelect: [chosen], ready: [shown] },
  };
  return new uPlot(options, [days, counts], element);
}

const KINDS = { growth, strip };

// Return [day, count] per `step` days.
function inSteps(points, step) {
  const counts = new Map();
  for (const [day, count] of points) {
    const first = Math.floor(day / step) * step;
    counts.set(first, (counts.get(first) ?? 0) + count);
  }
  return [...counts];
}

// Return the number of days per bar for visible bars.
function stepThatFits(points, least, width) {
  const span = points.at(-1)[0] - points[0][0];
  const fitting = Object.keys(STEPS).map(Number).filter((step) => step >= least);
  return fitting.find((step) => (span / step) * LEAST_BAR_PX <= width) ?? least;
}

function draw(element) {
  let points = JSON.parse(element.dataset.points);
  if (!points.length) return;
  element.plot?.destroy();
  let step = Number(element.dataset.step);
  const words = document.getElementById(element.dataset.stepWords);
  if (words) {
    step = stepThatFits(points, step, element.clientWidth - 2 * SIDE_PX);
    points = inSteps(points, step);
    words.textContent = STEPS[step];
  }
  const make = KINDS[element.dataset.chart];
  element.plot = make(element, points.map(([day]) => day * DAY_S), points.map(([, count]) => count), step);
}

function drawAll() {
  document.querySelectorAll("[data-chart]").forEach(draw);
}

let waiting = null;
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's toolbars appear and disappear
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 150);
});
document.addEventListener("themed", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
