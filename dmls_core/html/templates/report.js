/* Draws the figures of the page with Plotly, in the colours of the page's own style. */
"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displaylogo: false, responsive: true, displayModeBar: false, typesetMath: false };

  function palette() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue("--" + name).trim();
  }

  /* "@accent" stands for the page's colour of that name, wherever a colour may stand. */
  function coloured(value, colour) {
    if (Array.isArray(value)) return value.map((item) => coloured(item, colour));
    if (value === null || typeof value !== "object") return value;
    const copy = {};
    for (const [key, item] of Object.entries(value)) {
      const name = /color(scale)?$/.test(key);
      if (name && typeof item === "string" && item.startsWith("@")) copy[key] = colour(item.slice(1));
      else if (key === "colorscale" && Array.isArray(item)) {
        copy[key] = item.map(([at, tone]) => [at, tone.startsWith("@") ? colour(tone.slice(1)) : tone]);
      } else copy[key] = coloured(item, colour);
    }
    return copy;
  }

  function axis(own, colour) {
    return Object.assign(
      {
        gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"),
        tickcolor: colour("line"), automargin: true,
      },
      own
    );
  }

  function draw() {
    const colour = palette();
    for (const [id, figure] of Object.entries(figures)) {
      const layout = coloured(figure.layout, colour);
      for (const name of ["xaxis", "yaxis"]) layout[name] = axis(layout[name], colour);
      Object.assign(layout, {
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("text") },
        hoverlabel: {
          bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("text") }, align: "left",
        },
      });
      const place = document.getElementById(id);
      if (document.documentElement.classList.contains("paper")) layout.width = place.clientWidth;
      Plotly.react(place, coloured(figure.data, colour), layout, config);
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
