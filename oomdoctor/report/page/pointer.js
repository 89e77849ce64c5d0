// What the pointer and the keys do to the timelines.

const LEAST_ZOOM = 1 / 5000;

Chart.prototype.timeAt = function (x) {
  const [from, to] = this.range(), box = this.box;
  const share = (Math.min(box.right, Math.max(box.left, x)) - box.left) / (box.right - box.left);
  return from + share * (to - from);
};

Chart.prototype.listen = function () {
  let start = null;
  const place = (event) => event.clientX - this.plot.getBoundingClientRect().left;
  this.plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = place(event);
    this.plot.setPointerCapture(event.pointerId);
  });
  this.plot.addEventListener("pointermove", (event) => {
    const x = place(event);
    if (start !== null && Math.abs(x - start) > 4) {
      const [a, b] = [Math.min(x, start), Math.max(x, start)];
      this.pick.setAttribute("x", Math.max(a, this.box.left));
      this.pick.setAttribute("width", Math.max(0, Math.min(b, this.box.right) - Math.max(a, this.box.left)));
      this.group.point(null);
    } else {
      this.group.point(this.timeAt(x), this);
    }
  });
  this.plot.addEventListener("pointerup", (event) => {
    const x = place(event), from = start;
    start = null;
    this.pick.setAttribute("width", 0);
    if (from === null || Math.abs(x - from) <= 4) return;
    this.group.zoom([this.timeAt(Math.min(x, from)), this.timeAt(Math.max(x, from))]);
  });
  this.plot.addEventListener("pointercancel", () => { start = null; this.pick.setAttribute("width", 0); });
  this.plot.addEventListener("pointerleave", () => { if (start === null) this.group.point(null); });
  this.plot.addEventListener("dblclick", () => this.group.zoom(null));
  this.plot.addEventListener("keydown", (event) => this.key(event));
  this.plot.addEventListener("blur", () => this.group.point(null));
};

Chart.prototype.key = function (event) {
  const [from, to] = this.range(), at = this.group.at === null ? (from + to) / 2 : this.group.at;
  const near = (share) => this.group.zoom([at - (at - from) * share, at + (to - at) * share]);
  const keys = {
    ArrowLeft: () => this.group.point(Math.max(from, at - (to - from) / 100), this),
    ArrowRight: () => this.group.point(Math.min(to, at + (to - from) / 100), this),
    "+": () => near(0.5),
    "-": () => near(2),
    Escape: () => this.group.zoom(null),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
};

// The figures at a time; only the chart under the pointer shows the box.
Chart.prototype.point = function (time, isHere) {
  this.dots.replaceChildren();
  this.tip.hidden = true;
  this.cross.setAttribute("visibility", "hidden");
  if (time === null) return;
  const { spec, box } = this, rows = [];
  let snapped = null;
  spec.series.forEach((one) => {
    if (!one.shown) return;
    const i = this.nearest(one, time);
    if (i === null) return;
    if (snapped === null) snapped = one.t[i];
    rows.push([one.colour, one.name, one.v[i]]);
    svg("circle", { class: "dot s" + one.colour, cx: this.sx(one.t[i]), cy: this.sy(one.v[i]), r: 3.5 }, this.dots);
  });
  if (snapped === null) {
    const coming = spec.lines.find((line) => line.kind === "forecast" && line.from[0] <= time && time <= line.to[0]);
    if (!coming) return;
    const share = (time - coming.from[0]) / (coming.to[0] - coming.from[0]);
    rows.push([0, "forecast", coming.from[1] + share * (coming.to[1] - coming.from[1])]);
    snapped = time;
  }
  const x = this.sx(snapped);
  this.cross.setAttribute("x1", x);
  this.cross.setAttribute("x2", x);
  this.cross.setAttribute("visibility", "visible");
  if (isHere) this.tell(snapped, rows, x);
};

// The known figure of a series that is closest in time; none beyond its ends.
Chart.prototype.nearest = function (one, time) {
  const count = one.t.length, reach = (this.range()[1] - this.range()[0]) / 50;
  let right = Math.min(count, lowerBound(one.t, time)), left = right - 1;
  while (right < count && one.v[right] === null) right += 1;
  while (left >= 0 && one.v[left] === null) left -= 1;
  if (left < 0 && right >= count) return null;
  const isLeft = right >= count || (left >= 0 && time - one.t[left] <= one.t[right] - time);
  const found = isLeft ? left : right;
  const isBeyond = (left < 0 || right >= count) && Math.abs(one.t[found] - time) > reach;
  return isBeyond ? null : found;
};

Chart.prototype.tell = function (time, rows, x) {
  const { spec, tip } = this;
  tip.replaceChildren();
  const said = spec.x === "s" ? clock(time, time < 60 ? 0.1 : 1) : Number(time.toPrecision(4)) + " ms";
  const phases = spec.phases.filter((phase) => phase[2] <= time && time <= phase[3]);
  const step = lowerBound(spec.steps, time + 1e-9, (one) => one[0]) - 1;
  const where = [...new Set(phases.map((phase) => phase[1]))].slice(-2);
  if (step >= 0 && phases.length) where.push("step " + spec.steps[step][1].toLocaleString("en"));
  element("div", "tip-time", tip, said);
  if (where.length) element("div", "tip-where", tip, where.join(" · "));
  for (const [colour, name, value] of rows) {
    const row = element("div", "tip-row", tip);
    element("span", "swatch s" + colour, row);
    element("span", "tip-name", row, name);
    element("span", "tip-value", row, bytes(value));
  }
  const limit = Math.min(...spec.limits.map((one) => one.v));
  if (rows.length && Number.isFinite(limit)) {
    element("div", "tip-where", tip, (100 * rows[0][2] / limit).toFixed(0) + "% of the limit, " + bytes(limit));
  }
  tip.hidden = false;
  const wide = tip.offsetWidth, room = this.plot.clientWidth;
  const left = x < room / 2 ? x + 14 : x - 14 - wide;
  tip.style.left = Math.min(Math.max(0, left), Math.max(0, room - wide)) + "px";
  tip.style.top = this.box.top + 8 + "px";
};

class Group {
  constructor() { this.charts = []; this.range = null; this.at = null; }

  zoom(range) {
    if (range) {
      const [first, last] = this.charts[0].whole();
      const least = LEAST_ZOOM * (last - first);
      let [from, to] = [Math.max(first, range[0]), Math.min(last, range[1])];
      if (to - from < least) { const middle = (from + to) / 2; from = middle - least / 2; to = middle + least / 2; }
      range = from <= first && to >= last ? null : [from, to];
    }
    this.range = range;
    for (const chart of this.charts) chart.draw();
  }

  point(time, here) {
    this.at = time;
    for (const chart of this.charts) if (chart.svg) chart.point(time, chart === here);
  }
}

function start() {
  const data = JSON.parse(document.getElementById("oomdoctor-data").textContent);
  const groups = new Map();
  for (const root of document.querySelectorAll(".chart")) {
    const key = root.dataset.group || root.dataset.chart;
    if (!groups.has(key)) groups.set(key, new Group());
    const spec = root.dataset.chart === "step" ? data.step : data.charts[Number(root.dataset.chart)];
    new Chart(root, spec, groups.get(key));
  }
}

start();
