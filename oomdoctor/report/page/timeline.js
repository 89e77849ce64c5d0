// A timeline in SVG: zoom by dragging, figures under the pointer, every peak drawn.

class Chart {
  // `group` shares zoom and pointer between charts of the same run.
  constructor(root, spec, group) {
    this.root = root;
    this.spec = spec;
    this.group = group;
    for (const one of spec.series) { one.t = one.t || spec.t; }
    group.charts.push(this);
    const heading = element("div", "chart-head", root);
    element("h3", "", heading, spec.title);
    this.legend(heading);
    this.reset = element("button", "reset", heading, "Show all");
    this.reset.type = "button";
    this.reset.hidden = true;
    this.reset.addEventListener("click", () => group.zoom(null));
    this.plot = element("div", "plot", root);
    this.plot.tabIndex = 0;
    this.tip = element("div", "tip", this.plot);
    this.tip.hidden = true;
    this.tip.setAttribute("role", "status");
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  legend(parent) {
    const list = element("div", "legend", parent);
    this.spec.series.forEach((one) => {
      const key = element("button", "key", list);
      key.type = "button";
      key.title = "Show or hide";
      element("span", "swatch s" + one.colour, key);
      key.append(one.name);
      key.setAttribute("aria-pressed", String(one.shown));
      key.addEventListener("click", () => {
        one.shown = !one.shown;
        key.setAttribute("aria-pressed", String(one.shown));
        this.draw();
      });
    });
    this.far = element("span", "far", list);
  }

  whole() {
    let high = this.spec.until;
    // A forecast far ahead must not squeeze what was measured: only its direction is shown then.
    const until = high;
    for (const line of this.spec.lines) {
      if (line.kind === "forecast") high = Math.max(high, line.to[0] * 1.03 <= 1.6 * until ? line.to[0] * 1.03 : 1.12 * until);
    }
    return [0, high > 0 ? high : 1];
  }

  range() { return this.group.range || this.whole(); }

  // Lowest and highest of what is shown between two times.
  extent(from, to) {
    let low = Infinity, high = 0;
    for (const one of this.spec.series) {
      if (!one.shown) continue;
      const last = Math.min(one.t.length, lowerBound(one.t, to) + 1);
      for (let i = Math.max(0, lowerBound(one.t, from) - 1); i < last; i += 1) {
        const value = one.v[i];
        if (value === null) continue;
        if (value > high) high = value;
        if (value < low) low = value;
      }
    }
    return [low, high];
  }

  vertical(from, to) {
    const [low, high] = this.extent(from, to);
    let top = high || 1;
    for (const limit of this.spec.limits) if (limit.v <= 2 * high) top = Math.max(top, limit.v);
    for (const line of this.spec.lines) {
      const ahead = (Math.min(to, line.to[0]) - line.from[0]) / (line.to[0] - line.from[0] || 1);
      if (ahead > 0) top = Math.max(top, Math.min(line.from[1] + ahead * (line.to[1] - line.from[1]), 1.6 * top));
    }
    const isNarrow = this.group.range && low > 0.5 * top;
    const bottom = isNarrow ? low - 0.15 * (top - low || top) : 0;
    return [Math.max(0, bottom), top + 0.1 * (top - Math.max(0, bottom))];
  }

  draw() {
    const width = this.plot.clientWidth, spec = this.spec;
    if (!width) return;
    const lanes = spec.strip && spec.phases.length ? 1 + Math.max(...spec.phases.map((phase) => phase[4])) : 0;
    const inside = this.root.classList.contains("small") ? 130 : width < 600 ? 190 : 230;
    const box = { left: 66, right: width - 10, top: 6 + 18 * lanes, bottom: 6 + 18 * lanes + inside };
    const [from, to] = this.range(), [low, high] = this.vertical(from, to);
    this.box = box;
    this.sx = (t) => box.left + (t - from) / (to - from) * (box.right - box.left);
    this.sy = (v) => box.bottom - (v - low) / (high - low) * (box.bottom - box.top);
    if (this.svg) this.svg.remove();
    this.svg = svg("svg", { width, height: box.bottom + 24, role: "img", "aria-label": spec.title + " over time" });
    this.plot.prepend(this.svg);
    const defs = svg("defs", {}, this.svg);
    const clipTo = (name, y) => {
      const id = name + "-" + spec.what, clip = svg("clipPath", { id }, defs);
      svg("rect", { x: box.left, y, width: box.right - box.left, height: box.bottom - y }, clip);
      return "url(#" + id + ")";
    };
    this.clip = clipTo("all", 0);
    this.drawPhases(from, to);
    this.drawAxes(from, to, low, high);
    this.labels = [];
    this.drawLimits(low, high);
    const marks = svg("g", { "clip-path": clipTo("plot", box.top) }, this.svg);
    for (let n = spec.series.length - 1; n >= 0; n -= 1) this.drawSeries(n, from, to, marks);
    this.drawLines(marks, from, to);
    this.cross = svg("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" }, this.svg);
    this.dots = svg("g", {}, this.svg);
    this.pick = svg("rect", { class: "pick", y: box.top, height: box.bottom - box.top, width: 0 }, this.svg);
    this.reset.hidden = !this.group.range;
  }

  drawPhases(from, to) {
    const { box, spec } = this, group = svg("g", { "clip-path": this.clip }, this.svg);
    const taken = [-Infinity, -Infinity];
    let odd = false;
    for (const [kind, label, start, end, lane] of spec.phases) {
      if (lane === 0) odd = !odd;
      if (end < from || start > to) continue;
      const x0 = Math.max(box.left, this.sx(start)), x1 = Math.min(box.right, this.sx(end));
      if (x1 - taken[lane] < 1) continue; // too many to tell apart: zoom shows them
      taken[lane] = x1;
      const wide = Math.max(1, x1 - x0);
      if (lane === 0 && odd) svg("rect", { class: "band", x: x0, width: wide, y: box.top, height: box.bottom - box.top }, group);
      if (!spec.strip) continue;
      svg("rect", { class: "phase " + kind, x: x0, width: Math.max(1, wide - 1), y: 2 + 18 * lane, height: 16, rx: 2 }, group);
      const room = Math.floor((wide - 8) / 6.4);
      const short = label.replace(/^epoch /, "").replace(/^first step$/, "first");
      const said = label.length <= room ? label : short.length <= room ? short : "";
      if (said) svg("text", { class: "phase-name", x: x0 + 4, y: 14 + 18 * lane }, group, said);
    }
  }

  drawAxes(from, to, low, high) {
    const { box, spec } = this, axes = svg("g", { class: "axes" }, this.svg);
    for (const tick of byteTicks(low, high, (box.bottom - box.top) / 42)) {
      const y = this.sy(tick.at);
      svg("line", { x1: box.left, x2: box.right, y1: y, y2: y }, axes);
      svg("text", { x: box.left - 8, y: y + 4, "text-anchor": "end" }, axes, tick.text);
    }
    const count = (box.right - box.left) / 90;
    const step = niceStep(to - from, count, spec.x === "s" ? TIMES : []);
    for (const at of ticks(from, to, step)) {
      const x = this.sx(at);
      if (x > box.right - 14) continue;
      const told = spec.x === "s" ? clock(at, step, to) : Number(at.toPrecision(6)) + " ms";
      svg("text", { x, y: box.bottom + 17, "text-anchor": "middle" }, axes, told);
      svg("line", { x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4 }, axes);
    }
    svg("line", { class: "base", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }, axes);
  }

  // Points to draw: where there are more than pixels, the lowest and highest of each pixel.
  points(one, from, to) {
    const first = Math.max(0, lowerBound(one.t, from) - 1), last = Math.min(one.t.length, lowerBound(one.t, to) + 1);
    const found = [];
    const isDense = last - first > 2 * (this.box.right - this.box.left);
    let pixel = null, low = null, high = null;
    const flush = () => {
      if (low === null) return;
      const pair = low === high ? [low] : low < high ? [low, high] : [high, low];
      for (const i of pair) found.push([this.sx(one.t[i]), this.sy(one.v[i])]);
      low = high = null;
    };
    for (let i = first; i < last; i += 1) {
      if (one.v[i] === null) continue;
      if (!isDense) { found.push([this.sx(one.t[i]), this.sy(one.v[i])]); continue; }
      const at = Math.floor(this.sx(one.t[i]));
      if (at !== pixel) { flush(); pixel = at; }
      if (low === null || one.v[i] < one.v[low]) low = i;
      if (high === null || one.v[i] > one.v[high]) high = i;
    }
    flush();
    return found;
  }

  drawSeries(number, from, to, parent) {
    const one = this.spec.series[number];
    if (!one.shown) return;
    const points = this.points(one, from, to);
    if (!points.length) return;
    // Within a step an allocator holds a figure until the next one; between samples nobody knows.
    const pair = ([x, y]) => this.spec.x === "ms" ? "H" + x.toFixed(1) + "V" + y.toFixed(1) : "L" + x.toFixed(1) + " " + y.toFixed(1);
    const path = "M" + points[0][0].toFixed(1) + " " + points[0][1].toFixed(1) + points.slice(1).map(pair).join("");
    if (number === 0 && this.spec.t.length) {
      const base = this.box.bottom;
      svg("path", { class: "area s" + one.colour, d: path + "L" + points[points.length - 1][0].toFixed(1) + " " + base + "L" + points[0][0].toFixed(1) + " " + base + "Z" }, parent);
    }
    // A figure that is read rarely is shown as what it is: a few points.
    const isRare = points.length > 1 && points.length < 0.2 * one.t.length && one.v.includes(null);
    svg("path", { class: "series s" + one.colour + (isRare ? " rare" : ""), d: path, "data-points": points.length }, parent);
    if (isRare) for (const [x, y] of points) svg("circle", { class: "dot s" + one.colour, cx: x, cy: y, r: 3 }, parent);
  }

  // A name that ends at `right`, moved up or down to where no other name is.
  label(kind, text, right, y, parent, anchor = "end") {
    const { box } = this, wide = LETTER * text.length;
    const x1 = Math.max(right, Math.min(box.right, box.left + 4 + wide)), x0 = x1 - wide;
    const isCrossed = (at) => this.spec.limits.some((one) => Math.abs(this.sy(one.v) - at + 4) < 9);
    const isFree = (at) => at > box.top + 10 && at < box.bottom && !isCrossed(at) && !this.labels.some(
      (one) => x0 < one.x1 + 4 && one.x0 < x1 + 4 && Math.abs(at - one.y) < 17);
    const tries = [0, -17, 17, -34, 34, 51, 68].map((shift) => Math.max(box.top + 11, y) + shift);
    const at = tries.find(isFree);
    if (at === undefined) return;
    this.labels.push({ x0, x1, y: at });
    svg("text", { class: "halo " + kind, x: anchor === "end" ? x1 : x0, y: at, "text-anchor": anchor }, parent, text);
  }

  drawLines(parent, from, to) {
    const { box, spec } = this;
    for (const line of spec.lines) {
      const [x0, y0] = [this.sx(line.from[0]), this.sy(line.from[1])];
      const [x1, y1] = [this.sx(line.to[0]), this.sy(line.to[1])];
      svg("line", { class: line.kind, x1: x0, y1: y0, x2: x1, y2: y1 }, parent);
      if (line.kind === "forecast" && line.to[0] <= to) svg("circle", { class: "forecast-end", cx: x1, cy: y1, r: 4 }, parent);
      if (line.to[0] < from || line.from[0] > to) continue;
      const left = Math.max(x0, box.left), right = Math.min(x1, box.right);
      const at = line.kind === "growth" ? (left + right) / 2 : right, slope = (y1 - y0) / (x1 - x0 || 1);
      this.label(line.kind + "-name", line.name, at - 8, y0 + slope * (at - x0) - 12, parent);
    }
    const end = spec.end;
    if (end && end.t >= from && end.t <= to) {
      const x = Math.min(this.sx(end.t), box.right - 1);
      svg("line", { class: "end" + (end.bad ? " bad" : ""), x1: x, x2: x, y1: box.top, y2: box.bottom }, parent);
      this.label("end-name" + (end.bad ? " bad" : ""), end.name, x - 6, box.bottom - 8, parent);
    }
  }

  drawLimits(low, high) {
    const { box, spec } = this, beyond = [];
    let isShown = false;
    for (const limit of [...spec.limits].sort((a, b) => a.v - b.v)) {
      const y = this.sy(limit.v), told = "limit " + bytes(limit.v);
      if (limit.v > high || limit.v < low) { beyond.push(told + " (" + limit.name + ") is outside this view"); continue; }
      isShown = true;
      svg("line", { class: "limit", x1: box.left, x2: box.right, y1: y, y2: y }, this.svg);
      const full = told + " · " + limit.name;
      const said = full.length * LETTER < box.right - box.left ? full : told;
      this.label("limit-name", said, box.left + 6 + LETTER * said.length, y - 6, this.svg, "start");
    }
    this.far.textContent = isShown ? "" : beyond.slice(0, 1).join();
  }
}
