/* Draws the figures of the page with Plotly, in the colors of the page's own style. */
"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displaylogo: false, responsive: true, displayModeBar: false, typesetMath: false };

  function palette() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue("--" + name).trim();
  }

  /* "@accent" stands for the page's color of that name, wherever a color may stand. */
  function colored(value, color) {
    if (Array.isArray(value)) return value.map((item) => colored(item, color));
    if (value === null || typeof value !== "object") return value;
    const copy = {};
    for (const [key, item] of Object.entries(value)) {
      const name = /color(scale)?$/.test(key);
      if (name && typeof item === "string" && item.startsWith("@")) copy[key] = color(item.slice(1));
      else if (key === "colorscale" && Array.isArray(item)) {
        copy[key] = item.map(([at, tone]) => [at, tone.startsWith("@") ? color(tone.slice(1)) : tone]);
      } else copy[key] = colored(item, color);
    }
    return copy;
  }

  function axis(own, color) {
    return Object.assign(
      {
        gridcolor: color("line"), linecolor: color("line"), zerolinecolor: color("line"),
        tickcolor: color("line"), automargin: true,
      },
      own
    );
  }

  function draw() {
    const color = palette();
    for (const [id, figure] of Object.entries(figures)) {
      const layout = colored(figure.layout, color);
      for (const name of ["xaxis", "yaxis"]) layout[name] = axis(layout[name], color);
      Object.assign(layout, {
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("text") },
        hoverlabel: {
          bgcolor: color("card"), bordercolor: color("line"), font: { color: color("text") }, align: "left",
        },
      });
      const place = document.getElementById(id);
      if (document.documentElement.classList.contains("paper")) layout.width = place.clientWidth;
      Plotly.react(place, colored(figure.data, color), layout, config);
    }
  }

  function paper(on) {
    document.documentElement.classList.toggle("paper", on);
    draw();
  }

  draw();
  dark.addEventListener("change", draw);
  window.addEventListener("beforeprint", () => paper(true));
  window.addEventListener("afterprint", () => paper(false));
})();
