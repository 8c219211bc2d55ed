// Draws the plots of a report; all figures are in the page.
(() => {
  "use strict";
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("wb-data").textContent);
  const HEIGHT = 260, PRINTED = 690;
  const printing = matchMedia("print");
  let drawn = [];

  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // At most six digits, and none that mean nothing.
  function figure(v) {
    if (v == null || !isFinite(v)) return "–";
    const a = Math.abs(v);
    if (a !== 0 && (a < 1e-4 || a >= 1e9)) return v.toExponential(3);
    return v.toLocaleString("en-US", { maximumSignificantDigits: a >= 1e5 ? 9 : 5, maximumFractionDigits: 6 });
  }
  const tick = (v) => figure(v);

  function time(ns) {
    const a = Math.abs(ns);
    for (const [unit, n] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) if (a >= n) return figure(+(ns / n).toPrecision(3)) + " " + unit;
    return figure(+ns.toPrecision(3)) + " ns";
  }
  // What a place on the x axis stands for.
  function meaning(p, x) {
    switch (p.x.kind) {
      case "times": return time(Math.sign(x) * 10 ** Math.abs(x));
      case "tail": return figure(100 * (1 - 10 ** -x)) + " %";
      case "names": { const m = p.x.marks[Math.round(x)]; return m ? m[1] : ""; }
      default: return figure(x) + (p.x.unit ? " " + p.x.unit : "");
    }
  }

  // About, in pixels.
  function longestMark(p) { return Math.max(...p.x.marks.map((m) => m[1].length)) * 7 + 14; }

  function xAxis(p, axis, width) {
    const marks = p.x.marks, x = { ...axis, label: p.x.title, labelSize: 22, size: 34 };
    if (!marks.length) { x.values = (u, list) => list.map(tick); x.space = 70; return x; }
    const longest = longestMark(p);
    x.splits = (u, i, low, high) => {
      let own = marks.filter((m) => m[0] >= low - 1e-9 && m[0] <= high + 1e-9).map((m) => m[0]);
      if (own.length < 2 && p.x.kind !== "names" && p.x.kind !== "counts") {
        const step = (high - low) / 5;
        return [0, 1, 2, 3, 4, 5].map((n) => low + n * step);
      }
      const every = Math.max(1, Math.ceil(own.length * longest / (width - 80)));
      return own.filter((v, n) => n % every === 0);
    };
    x.values = (u, list) => list.map((v) => { const m = marks.find((m) => m[0] === v); return m ? m[1] : meaning(p, v); });
    return x;
  }

  function options(p, width) {
    const muted = ink("--muted"), grid = { stroke: ink("--grid"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: muted, grid, ticks: grid, font, labelFont: font };
    // The last mark of these stands at the end, and half of it beyond.
    const half = p.x.kind === "names" ? longestMark(p) / 2 - (width - 80) / p.x.marks.length / 2 : 0;
    const beyond = ["times", "tail"].includes(p.x.kind) ? 28 : half > 0 ? half : null;
    const steps = uPlot.paths.stepped({ align: 1 }), xs = data.xs[p.xs];
    const first = xs[0], last = xs[xs.length - 1];
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
    const wide = (u, low, high) => {
      if (p.x.kind === "names") return [-0.5, p.x.marks.length - 0.5];
      if (low == null) return [0, 1];
      return low === high ? [low - 0.5, high + 0.5] : [low, high];
    };
    const tall = (u, low, high) => {
      if (low == null) return [0, 1];
      const least = Math.min(0, low), most = Math.max(0, high, p.y.upTo || 0);
      if (most === p.y.upTo) return [least * 1.06, most];
      return least === most ? [0, 1] : [least * 1.06, most * 1.06];
    };
    return {
      width, height: HEIGHT, padding: [null, beyond, null, null], series: [{ label: p.x.label, value: (u, v) => v == null ? "" : meaning(p, v) }, ...series],
      scales: { x: { time: false, range: wide, min: first, max: last }, y: p.y.log ? { distr: 3 } : { range: tall } },
      axes: [xAxis(p, axis, width), {
        ...axis, label: p.y.title, labelSize: 22,
        values: (u, list) => list.map((v) => v == null ? "" : tick(v)),
        size: (u, list) => 26 + 7 * Math.max(3, ...(list || []).map((t) => t.length)),
      }],
      cursor: p.x.kind === "linear" && p.x.unit === "s" ? { sync: { key: "time" } } : {},
    };
  }

  function draw() {
    drawn.forEach((u) => u.destroy());
    drawn = data.plots.map((p, i) => {
      const place = document.getElementById("plot-" + i);
      const width = printing.matches ? PRINTED : Math.max(320, place.clientWidth);
      return new uPlot(options(p, width), [data.xs[p.xs], ...p.series.map((s) => s.values)], place);
    });
  }

  const button = document.getElementById("wb-theme");
  const themes = ["system", "light", "dark"];
  let theme = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    if (theme) root.dataset.theme = themes[theme]; else delete root.dataset.theme;
    button.textContent = "colours: " + themes[theme];
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // What is folded would not be on paper.
  printing.addEventListener("change", () => {
    if (printing.matches) document.querySelectorAll("details").forEach((d) => { d.open = true; });
    draw();
  });
  let known = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== known && !printing.matches) { known = innerWidth; draw(); } });
  draw();
  root.dataset.drawn = String(drawn.length);
})();
