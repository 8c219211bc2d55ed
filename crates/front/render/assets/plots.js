// Plots of a report. Defines `wbPlots`, which the page of a report and the page of a server share.
const wbPlots = (() => {
  "use strict";
  const HEIGHT = 260, LEAST_WIDTH = 300;

  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // At most six digits, and none that mean nothing.
  function figure(v) {
    if (v == null || !isFinite(v)) return "–";
    const a = Math.abs(v);
    if (a !== 0 && (a < 1e-4 || a >= 1e9)) return v.toExponential(3);
    return v.toLocaleString("en-US", { maximumSignificantDigits: a >= 1e5 ? 9 : 5, maximumFractionDigits: 6 });
  }

  function time(ns) {
    const a = Math.abs(ns);
    for (const [unit, n] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) if (a >= n) return figure(+(ns / n).toPrecision(3)) + " " + unit;
    return figure(+ns.toPrecision(3)) + " ns";
  }

  // Meaning of a place on the x axis.
  function meaning(p, x) {
    switch (p.x.kind) {
      case "times": return time(Math.sign(x) * 10 ** Math.abs(x));
      case "tail": return figure(100 * (1 - 10 ** -x)) + " %";
      case "names": { const m = p.x.marks[Math.round(x)]; return m ? m[1] : ""; }
      default: return figure(x) + (p.x.unit ? " " + p.x.unit : "");
    }
  }

  // Width of the longest mark, about, in pixels.
  function longestMark(p) { return Math.max(...p.x.marks.map((m) => m[1].length)) * 7 + 14; }

  // Range of the x axis without a zoom.
  function range(p, low, high) {
    if (p.x.kind === "names") return [-0.5, p.x.marks.length - 0.5];
    if (low == null) return [0, 1];
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  }

  function xAxis(shown, axis) {
    const marks = () => shown.p.x.marks, x = { ...axis, label: shown.p.x.title, labelSize: 22, size: 34, space: 70 };
    const plain = x.values = (u, list) => list.map(figure);
    if (!marks().length) return x;
    x.splits = (u, i, low, high) => {
      const kind = shown.p.x.kind;
      const own = marks().filter((m) => m[0] >= low - 1e-9 && m[0] <= high + 1e-9).map((m) => m[0]);
      if (own.length < 2 && kind !== "names" && kind !== "counts") {
        const step = (high - low) / 5;
        return [0, 1, 2, 3, 4, 5].map((n) => low + n * step);
      }
      const every = Math.max(1, Math.ceil(own.length * longestMark(shown.p) / (u.width - 80)));
      return own.filter((v, n) => n % every === 0);
    };
    x.values = (u, list) => marks().length ? list.map((v) => { const m = marks().find((m) => m[0] === v); return m ? m[1] : meaning(shown.p, v); }) : plain(u, list);
    return x;
  }

  function options(shown, width) {
    const { p, xs } = shown;
    const muted = ink("--muted"), grid = { stroke: ink("--grid"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: muted, grid, ticks: grid, font, labelFont: font };
    // The last mark of these stands at the end, and half of it beyond.
    const half = p.x.kind === "names" ? longestMark(p) / 2 - (width - 80) / p.x.marks.length / 2 : 0;
    const beyond = ["times", "tail"].includes(p.x.kind) ? 28 : half > 0 ? half : null;
    const steps = uPlot.paths.stepped({ align: 1 });
    const series = p.series.map((s, i) => {
      const color = ink("--s" + (i % 12));
      return {
        label: s.name, stroke: color, width: 1.5, spanGaps: !p.gaps,
        dash: s.form === "dashes" ? [6, 4] : undefined,
        fill: s.form === "area" ? color + "40" : undefined,
        paths: s.form === "area" ? steps : undefined,
        points: s.form === "marks" ? { show: true, size: 7, fill: color } : s.form === "line" ? { fill: ink("--paper") } : { show: false },
        value: (u, v) => v == null ? "" : figure(v) + (p.y.unit ? " " + p.y.unit : ""),
      };
    });
    const tall = (u, low, high) => {
      if (low == null) return [0, 1];
      const upTo = shown.p.y.upTo, least = Math.min(0, low), most = Math.max(0, high, upTo || 0);
      if (most === upTo) return [least * 1.06, most];
      return least === most ? [0, 1] : [least * 1.06, most * 1.06];
    };
    return {
      width, height: HEIGHT, padding: [null, beyond, null, null],
      series: [{ label: p.x.label, value: (u, v) => v == null ? "" : meaning(shown.p, v) }, ...series],
      scales: {
        x: { time: false, range: (u, low, high) => range(shown.p, low, high), min: xs[0], max: xs[xs.length - 1] },
        y: p.y.log ? { distr: 3 } : { range: tall },
      },
      axes: [xAxis(shown, axis), {
        ...axis, label: p.y.title, labelSize: 22,
        values: (u, list) => list.map((v) => v == null ? "" : figure(v)),
        size: (u, list) => 26 + 7 * Math.max(3, ...(list || []).map((t) => t.length)),
      }],
      cursor: p.x.kind === "linear" && p.x.unit === "s" ? { sync: { key: "time" } } : {},
    };
  }

  const values = (p, xs) => [xs, ...p.series.map((s) => s.values)];

  const widthOf = (place) => Math.max(LEAST_WIDTH, place.clientWidth);

  // Draws a plot: `p` is its description, `xs` are its places on the x axis.
  function draw(p, xs, place, width) {
    const shown = { p, xs, place };
    shown.u = new uPlot(options(shown, width || widthOf(place)), values(p, xs), place);
    return shown;
  }

  const isLike = (a, b) => a.gaps === b.gaps && ["title", "kind", "unit", "label"].every((k) => a.x[k] === b.x[k])
    && !a.x.marks.length === !b.x.marks.length && (a.x.kind !== "names" || a.x.marks.length === b.x.marks.length)
    && ["title", "unit", "log"].every((k) => a.y[k] === b.y[k])
    && a.series.length === b.series.length && a.series.every((s, i) => s.form === b.series[i].form);

  // Shows new figures in a plot that was drawn; zoom and cursor stay. Returns false if it must be drawn anew.
  function update(shown, p, xs) {
    if (!isLike(shown.p, p)) return false;
    const { u } = shown, { min, max } = u.scales.x;
    const full = range(shown.p, shown.xs[0], shown.xs[shown.xs.length - 1]);
    const isZoomed = max > min && max - min < 0.999 * (full[1] - full[0]);
    const [low, high] = isZoomed ? [min, max] : range(p, xs[0], xs[xs.length - 1]);
    shown.p = p;
    shown.xs = xs;
    const labels = u.root.querySelectorAll(".u-legend .u-label");
    p.series.forEach((s, i) => {
      u.series[i + 1].label = s.name;
      if (labels[i + 1] && labels[i + 1].textContent !== s.name) labels[i + 1].textContent = s.name;
    });
    u.batch(() => {
      u.setData(values(p, xs), false);
      u.setScale("x", { min: low, max: high });
    });
    return true;
  }

  // Gives a plot the width of its place.
  function fit(shown) {
    const width = widthOf(shown.place);
    if (width !== shown.u.width) shown.u.setSize({ width, height: HEIGHT });
  }

  return { draw, update, fit };
})();
