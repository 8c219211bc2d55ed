// Draws the plots of a report; all figures are in the page.
(() => {
  "use strict";
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("wb-data").textContent);
  const PRINTED = 690;
  const printing = matchMedia("print");
  let drawn = [];

  function draw() {
    drawn.forEach((shown) => shown.u.destroy());
    drawn = data.plots.map((p, i) => {
      const place = document.getElementById("plot-" + i);
      return wbPlots.draw(p, data.xs[p.xs], place, printing.matches ? PRINTED : 0);
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
