// What if the batch were another one: moves the mark and rewrites the table of cards.

const SAID = { fits: "✓ fits", does_not_fit: "✗ does not fit", unknown: "? may fit" };

function place(scale, value) {
  const [low, high, start, end] = scale.split(",").map(Number);
  const within = Math.min(high, Math.max(low, value));
  return start + Math.log2(within / low) / (Math.log2(high / low) || 1) * (end - start);
}

function peakAt(line, batch) {
  const peak = Number(line.fixed) + batch * Number(line.each);
  return { peak, low: peak * Number(line.low), high: peak * Number(line.high) };
}

function verdict(at, usable) {
  return at.low > usable ? "does_not_fit" : at.high <= usable ? "fits" : "unknown";
}

function whatIf(root) {
  const sizes = root.dataset.sizes.split(",").map(Number);
  const input = root.querySelector("input[type=range]"), output = root.querySelector("output");
  const chart = root.querySelector("svg"), mark = root.querySelector(".mark");
  const show = () => {
    const batch = sizes[Number(input.value)], at = peakAt(root.dataset, batch);
    const said = batch.toLocaleString("en");
    for (const one of root.querySelectorAll(".at")) one.textContent = said;
    output.textContent = "peak " + bytes(at.peak) + ", between " + bytes(at.low) + " and " + bytes(at.high);
    input.setAttribute("aria-valuetext", said + ", " + output.textContent);
    mark.setAttribute("transform", "translate(" + place(chart.dataset.x, batch).toFixed(1) + ",0)");
    mark.querySelector("circle").setAttribute("cy", place(chart.dataset.y, at.peak).toFixed(1));
    const found = [];
    for (const row of root.querySelectorAll("tr[data-usable]")) {
      const usable = Number(row.dataset.usable), there = peakAt(row.dataset, batch), is = verdict(there, usable);
      found.push(is);
      const cell = row.querySelector(".verdict");
      cell.textContent = SAID[is];
      cell.className = "verdict " + is;
      row.querySelector(".peak").textContent = bytes(there.peak);
      row.querySelector(".left").textContent = usable > there.peak ? bytes(usable - there.peak) : "–";
    }
    chart.querySelectorAll("g.card").forEach((line, n) => line.setAttribute("class", "card " + found[n]));
  };
  input.addEventListener("input", show);
}

for (const root of document.querySelectorAll(".batches")) whatIf(root);

// One of several ways to train is seen at a time.
const variants = [...document.querySelectorAll(".variant")];
function pick(name) { for (const one of variants) one.hidden = one.dataset.variant !== name; }
for (const button of document.querySelectorAll(".picks input")) {
  if (button.checked) pick(button.value);
  button.addEventListener("change", () => pick(button.value));
}
