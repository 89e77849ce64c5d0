"use strict";
// What every page uses: sizes as text, ticks, elements, and the copy buttons.
// Text from a report only ever becomes textContent, never markup.

const SVG = "http://www.w3.org/2000/svg";
const LETTER = 7.2; // the width of a letter of a name, a little more than it is
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function bytes(size) {
  let value = Math.abs(size), unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  const digits = unit === 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return (size < 0 ? "−" : "") + value.toFixed(digits) + " " + UNITS[unit];
}

function clock(seconds, step, longest = seconds) {
  if (step < 1) return seconds.toFixed(step < 0.1 ? 2 : 1) + " s";
  if (longest < 60 && step < 60) return Math.round(seconds) + " s";
  const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  if (hours && step >= 60) return hours + ":" + two(minutes) + " h";
  if (step >= 60) return minutes + " min";
  const tail = two(minutes) + ":" + two(whole % 60);
  return hours ? hours + ":" + tail : tail.replace(/^0/, "");
}

function niceStep(span, count, steps) {
  const least = span / Math.max(1, count);
  const found = steps.find((step) => step >= least);
  if (found !== undefined) return found;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= least);
}

const TIMES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, 86400];

function ticks(low, high, step) {
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-12); n += 1) found.push(n * step);
  return found;
}

function byteTicks(low, high, count) {
  let unit = 1;
  while (high / unit >= 999.5) unit *= 1024;
  const step = unit * niceStep((high - low) / unit, count, [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 250, 500]);
  const digits = unit === 1 ? 0 : Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  const fixed = step / unit === 0.25 ? 2 : digits;
  const name = UNITS[Math.round(Math.log2(unit) / 10)];
  return ticks(low, high, step).map((at) => ({ at, text: at === 0 ? "0" : (at / unit).toFixed(fixed) + " " + name }));
}

// The first index whose value is not below `x`.
function lowerBound(values, x, key = (one) => one) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(values[middle]) < x) low = middle + 1; else high = middle;
  }
  return low;
}

function svg(name, attributes, parent, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function element(name, className, parent, text) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from a file may not have the clipboard; the old way needs a selection.
    const area = element("textarea", "", document.body);
    area.value = text;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const done = await copy(button.parentNode.querySelector("code").textContent);
    button.textContent = done ? "Copied" : "Select and copy by hand";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
