// The charts of reports and of the web page, drawn by ECharts. An element with `data-chart` names one of `builders` and
// contains its values as JSON. A report has echarts.js inlined; on the page, the first chart that comes into view loads it.
"use strict";

const CLASS_COLORS = ["#4c8dd8", "#e08a3c", "#46a97a", "#c56ab4", "#c9544b", "#8f7ee0", "#b0a03a", "#4fb3bf", "#9a7b63", "#7f8c9a"];
const CLASS_STROKES = ["solid", "dotted", [8, 3, 2, 3]]; // curves differ in more than their color
const SHADES = ["#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#c9cf2f"]; // from the worst trials to the best
const STAR = "path://M50 0 61 35 98 35 68 57 79 91 50 70 21 91 32 57 2 35 39 35Z";
const DASHED = [4, 4];

/** Return a variable of the style sheet as a color that a canvas understands. */
function color(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const palette = () => Object.fromEntries(["text", "muted", "line", "accent", "accent-soft", "card", "good"].map((name) => [name, color(name)]));

const isNumber = (value) => typeof value === "number";
const rounded = (value, digits) =>
  !isNumber(value) ? String(value)
    : Math.abs(value) >= 1e4 ? value.toLocaleString("en", { maximumSignificantDigits: digits })
      : String(Number(value.toPrecision(digits)));
const tick = (value) => rounded(value, 4);
const percent = (share) => `${Number((100 * share).toFixed(1))} %`;

/** Cut a text in the middle: names with the same beginning often differ at the end. */
function shorten(text, length) {
  const end = Math.floor((length - 1) / 2);
  return text.length > length ? `${text.slice(0, length - 1 - end)}…${text.slice(-end)}` : text;
}

function axis(colors, name, more = {}) {
  return {
    type: "value",
    scale: true,
    name: shorten(name, 40),
    nameLocation: "middle",
    nameTextStyle: { color: colors.muted },
    ...more,
    axisLine: { show: true, lineStyle: { color: colors.line }, ...more.axisLine },
    axisTick: { lineStyle: { color: colors.line }, ...more.axisTick },
    axisLabel: { color: colors.muted, fontSize: 11, hideOverlap: true, formatter: (value) => shorten(tick(value), 16), ...more.axisLabel },
    splitLine: { lineStyle: { color: colors.line }, ...more.splitLine },
  };
}

const category = (colors, name, data, more = {}) => axis(colors, name, { type: "category", data, ...more, splitLine: { show: false } });
const grid = (more = {}) => ({ left: 8, right: 20, top: 12, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "all", ...more });
const ends = (values) => [Math.min(...values), Math.max(...values)];

/** Return the range of an axis if all values are equal; the axis would begin at 0 otherwise. */
function range(values) {
  const [low, high] = ends(values);
  const margin = Math.abs(low) * 0.05 || 1;
  return low === high ? { min: low - margin, max: low + margin } : {};
}

/** Return the tooltip of the points of a chart; `describe` returns its lines, which are texts of users. */
function tooltip(colors, describe) {
  return {
    trigger: "item",
    confine: true,
    transitionDuration: 0,
    backgroundColor: colors.card,
    borderColor: colors.line,
    textStyle: { color: colors.text, fontSize: 12 },
    formatter: (point) => describe(point).map((line) => {
      const element = document.createElement("div");
      element.textContent = line;
      return element;
    }),
  };
}

const dots = (colors, data, more = {}) => ({ type: "scatter", symbolSize: 6, itemStyle: { color: colors.accent, opacity: 0.6 }, data, ...more });
const dashes = (colors, data, stroke = colors.muted) => ({ type: "line", silent: true, symbol: "none", data, lineStyle: { color: stroke, width: 1, type: DASHED } });
const coordinates = ({ value: [x, y] }) => [`${rounded(x, 5)}, ${rounded(y, 5)}`];

/** Draw a cell. ECharts' own heatmaps use several canvases, of which a browser prints the last one. */
function drawCell(_, api) {
  const [x, y] = api.coord([api.value(0), api.value(1)]);
  const [width, height] = api.size([1, 1]);
  return { type: "rect", shape: { x: x - width / 2, y: y - height / 2, width, height }, style: { fill: api.visual("color") }, emphasis: { style: { stroke: "#fff", lineWidth: 2 } } };
}

function heatmap(colors, { columns, rows, x_name, y_name }, cells, [low, high], format, more = {}) {
  return {
    grid: grid({ right: 64 }),
    xAxis: category(colors, x_name, columns, { splitArea: { show: false }, ...more.xAxis }),
    yAxis: category(colors, y_name, rows, more.yAxis),
    visualMap: {
      min: low, max: high > low ? high : low + 1, calculable: false, right: 0, top: "middle", itemWidth: 12, itemHeight: 160, padding: 0,
      text: [format(high), format(low)], textStyle: { color: colors.muted, fontSize: 11 }, inRange: { color: more.shades }, seriesIndex: 0,
    },
    series: [
      { type: "custom", data: cells, progressive: 0, renderItem: drawCell },
      ...(more.series ?? []),
    ],
    tooltip: tooltip(colors, ({ value: [column, row, score] }) => [`${x_name}: ${columns[column]}`, `${y_name}: ${rows[row]}`, format(score)]),
  };
}

/** Each returns ECharts' option for the values of one chart, which Python or a template writes. */
const builders = {
  history({ metric, complete, pruned, best }, colors) {
    const scores = (complete.length ? complete : pruned).map(([, score]) => score);
    const [low, high] = ends(scores);
    // The score of a pruned trial is not comparable: its dot is below the others.
    const below = low - (0.12 * (high - low) || Math.abs(low) * 0.04 || 0.8);
    const placed = complete.length ? pruned.map(([number, , settings]) => [number, below, settings]) : pruned;
    const winner = best.find(([, score]) => score === best.at(-1)[1])?.[0];
    const finished = complete.map((value) => (value[0] === winner ? { value, symbolSize: 11, itemStyle: { color: colors.good, opacity: 1 } } : value));
    return {
      legend: {
        top: 0, left: 0, itemHeight: 9, textStyle: { color: colors.text },
        data: ["complete", "best so far", { name: "pruned", itemStyle: { borderWidth: 1 } }],
      },
      grid: grid({ top: 36 }),
      xAxis: axis(colors, "trial", { minInterval: 1, splitLine: { show: false } }),
      yAxis: axis(colors, metric, range([...scores, ...placed.map(([, score]) => score)])),
      series: [
        ...(pruned.length ? [dots(colors, placed, { name: "pruned", itemStyle: { color: "transparent", borderColor: colors.muted } })] : []),
        ...(complete.length ? [dots(colors, finished, { name: "complete", symbolSize: 8, itemStyle: { color: colors.accent, opacity: 0.75 } })] : []),
        ...(best.length > 1 ? [{ type: "line", name: "best so far", silent: true, step: "end", symbol: "none", data: best, itemStyle: { color: colors.good }, lineStyle: { color: colors.good, width: 2 } }] : []),
      ],
      tooltip: tooltip(colors, ({ seriesName, value: [number, score, settings] }) =>
        [`trial ${number}: ${seriesName === "pruned" && complete.length ? "pruned" : rounded(score, 5)}`, ...settings]),
    };
  },

  bars({ names, values, spread, x_name, percentages }, colors) {
    const format = percentages ? percent : (value) => rounded(value, 4);
    const whiskers = spread.flatMap((half, at) => [[values[at] - half, at], [values[at] + half, at], ["-", "-"]]);
    return {
      grid: grid({ right: 48 }),
      xAxis: axis(colors, x_name, { scale: false, splitNumber: 4, axisLabel: { formatter: format } }),
      yAxis: category(colors, "", names, { inverse: true, axisLabel: { color: colors.text, interval: 0, formatter: (name) => shorten(name, 28) } }),
      series: [
        { type: "bar", data: values, barMaxWidth: 18, itemStyle: { color: colors.accent },
          label: { show: !spread.length, position: "right", color: colors.muted, fontSize: 11, formatter: ({ value }) => format(value) } },
        { type: "line", silent: true, symbol: "none", data: whiskers, lineStyle: { color: colors.muted, width: 1.5 } },
      ],
      tooltip: tooltip(colors, ({ dataIndex: at }) => [`${names[at]}: ${format(values[at])}${spread.length ? ` ± ${format(spread[at])}` : ""}`]),
    };
  },

  // Trials come best first. The last line is drawn above the others.
  parallel({ names, logs, trials, metric, best }, colors) {
    const drawn = [...trials].reverse();
    const columns = [...names.map((name) => drawn.map((trial) => trial.params[name])), drawn.map((trial) => trial.value)];
    const parallelAxis = [...names, metric].map((name, dim) => {
      const numeric = columns[dim].every(isNumber);
      const score = dim === names.length;
      const limits = numeric ? { min: ends(columns[dim])[0], max: ends(columns[dim])[1], ...range(columns[dim]) } : {};
      return {
        ...axis(colors, "", { splitLine: { show: false }, axisLabel: { backgroundColor: colors.card, padding: [1, 3] } }), // readable on the lines
        ...limits, dim, name: shorten(name, 18), nameLocation: "end", minInterval: columns[dim].every(Number.isInteger) ? 1 : 0,
        type: !numeric ? "category" : logs.includes(name) && limits.min > 0 ? "log" : "value",
        data: numeric ? undefined : [...new Set(columns[dim].map(String))].sort(),
        nameTextStyle: { color: score ? colors.accent : colors.text, fontWeight: score ? 700 : 400 },
        areaSelectStyle: { color: colors.accent, borderColor: colors.accent, opacity: 0.2, width: 16 },
      };
    });
    const data = drawn.map((trial, at) => {
      const shade = Math.floor((at * SHADES.length) / drawn.length);
      const winner = trial.number === best;
      return {
        value: columns.map((column, dim) => (parallelAxis[dim].type === "category" ? String(column[at]) : column[at])),
        lineStyle: winner ? { color: colors.good, width: 3, opacity: 1 } : { color: SHADES[shade], width: 1.2, opacity: 0.4 + 0.1 * shade },
      };
    });
    return {
      parallel: { left: 50, right: 60, top: 36, bottom: 16 },
      parallelAxis,
      series: [{ type: "parallel", data, inactiveOpacity: 0.06, activeOpacity: 0.9, smooth: false }],
      tooltip: tooltip(colors, ({ dataIndex: at }) =>
        [`trial ${drawn[at].number}: ${rounded(drawn[at].value, 5)}`, ...names.map((name) => `${name} ${tick(drawn[at].params[name])}`)]),
    };
  },

  slice({ values, scores, log, metric }, colors) {
    const numeric = values.every(isNumber);
    const limits = ends(numeric ? values : [0]);
    const words = [...values.filter(isNumber).sort((one, other) => one - other), ...values.filter((value) => !isNumber(value)).sort()].map(String);
    return {
      grid: grid(),
      xAxis: numeric
        ? axis(colors, "", { type: log && limits[0] > 0 ? "log" : "value", min: limits[0], max: limits[1], ...range(values), splitNumber: 3, minInterval: values.every(Number.isInteger) ? 1 : 0 })
        : category(colors, "", [...new Set(words)]),
      yAxis: axis(colors, metric, { ...range(scores), splitNumber: 4 }),
      series: [dots(colors, values.map((value, at) => [numeric ? value : String(value), scores[at]]))],
      tooltip: tooltip(colors, coordinates),
    };
  },

  // The scores of all configurations of one trial: the star is the best one, the ring the selected one.
  score_map({ scores, metric, maximize, star, ring, ...labels }, colors) {
    const cells = scores.flatMap((row, at) => row.map((score, column) => [column, at, score])).filter(([, , score]) => score !== null);
    const symbol = (at, more) => ({ type: "scatter", silent: true, data: [at], ...more });
    return heatmap(colors, labels, cells, ends(scores.flat().filter(isNumber)), (score) => rounded(score, 5), {
      shades: maximize ? SHADES : [...SHADES].reverse(),
      series: [
        symbol(star, { symbol: STAR, symbolSize: 16, itemStyle: { color: "#fff", borderColor: "#000", borderWidth: 1 } }),
        ...(ring ? [symbol(ring, { symbol: "circle", symbolSize: 16, itemStyle: { color: "transparent", borderColor: "#fff", borderWidth: 3 } })] : []),
      ],
    });
  },

  score_line({ columns, scores, x_name, metric }, colors) {
    return {
      grid: grid(),
      xAxis: category(colors, x_name, columns),
      yAxis: axis(colors, metric),
      series: [{ type: "line", data: scores, symbol: "circle", symbolSize: 6, itemStyle: { color: colors.accent } }],
      tooltip: tooltip(colors, ({ dataIndex: at }) => [`${columns[at]}: ${rounded(scores[at], 5)}`]),
    };
  },

  // Curves of classes, and `chance` as dashed lines from one edge to the other. Code -1 is all classes.
  curves({ curves, chance, x_name, y_name }, colors) {
    const classColor = (code) => CLASS_COLORS[Math.max(0, code) % CLASS_COLORS.length];
    const stroke = (code) => (curves.length > 2 ? CLASS_STROKES[Math.max(0, code) % CLASS_STROKES.length] : "solid");
    return {
      legend: { orient: "vertical", left: 0, bottom: 0, itemGap: 6, itemHeight: 12, textStyle: { color: colors.text, fontSize: 11 }, formatter: (name) => shorten(name, 44) },
      grid: grid({ bottom: 12 + 18 * curves.length }),
      xAxis: axis(colors, x_name, { min: 0, max: 1 }),
      yAxis: axis(colors, y_name, { min: 0, max: 1 }),
      series: [
        ...chance.map(({ code, from, to }) => dashes(colors, [[0, from], [1, to]], code === null ? colors.muted : classColor(code))),
        ...curves.map(({ code, name, x, y }) => ({
          type: "line", name, data: x.map((value, at) => [value, y[at]]), symbol: "circle", symbolSize: 7, clip: false,
          itemStyle: { color: classColor(code), opacity: 0 }, emphasis: { itemStyle: { opacity: 1 } },
          lineStyle: { color: classColor(code), width: 2, type: stroke(code), opacity: 1 },
        })),
      ],
      tooltip: tooltip(colors, ({ seriesName, value: [x, y] }) => [seriesName, `${x_name} ${rounded(x, 3)}`, `${y_name} ${rounded(y, 3)}`]),
    };
  },

  // On the dashed line, predictions are calibrated. Larger dots have more rows.
  calibration({ predicted, observed, rows, x_name, y_name, probabilities }, colors) {
    const [low, high] = probabilities ? [0, 1] : ends([...predicted, ...observed]);
    const largest = Math.max(...rows);
    const limits = probabilities ? { min: 0, max: 1 } : {};
    return {
      grid: grid(),
      xAxis: axis(colors, x_name, limits),
      yAxis: axis(colors, y_name, limits),
      series: [
        dashes(colors, [[low, low], [high, high]]),
        { type: "line", data: predicted.map((value, at) => [value, observed[at], rows[at]]), symbol: "circle", clip: false,
          symbolSize: ([, , count]) => 6 + 12 * Math.sqrt(count / largest), itemStyle: { color: colors.accent }, lineStyle: { color: colors.accent, width: 1.5 } },
      ],
      tooltip: tooltip(colors, ({ value: [x, y, count] }) => [`${x_name} ${rounded(x, 4)}`, `${y_name} ${rounded(y, 4)}`, `${count.toLocaleString("en")} rows`]),
    };
  },

  // `zero`: the dashed line is at 0; otherwise, x and y are equal on it.
  scatter({ x, y, x_name, y_name, zero }, colors) {
    const [low, high] = ends(zero ? x : [...x, ...y]);
    return {
      grid: grid(),
      xAxis: axis(colors, x_name),
      yAxis: axis(colors, y_name),
      series: [
        dashes(colors, zero ? [[low, 0], [high, 0]] : [[low, low], [high, high]]),
        dots(colors, x.map((value, at) => [value, y[at]]), { symbolSize: 5, itemStyle: { color: colors.accent, opacity: 0.5 } }),
      ],
      tooltip: tooltip(colors, coordinates),
    };
  },

  histogram({ middle, rows, x_name }, colors) {
    return {
      grid: grid(),
      xAxis: category(colors, x_name, middle.map(tick)),
      yAxis: axis(colors, "rows", { scale: false, minInterval: 1 }),
      series: [{ type: "bar", data: rows, barCategoryGap: "8%", itemStyle: { color: colors.accent, opacity: 0.8 } }],
      tooltip: tooltip(colors, ({ dataIndex: at }) => [`about ${tick(middle[at])}: ${rows[at].toLocaleString("en")} rows`]),
    };
  },

  confusion_map({ labels, shares }, colors) {
    const cells = shares.flatMap((row, at) => row.map((share, column) => [column, at, share]));
    const names = { axisLabel: { fontSize: labels.length < 60 ? 10 : 8, formatter: (name) => shorten(name, 28) } };
    return heatmap(colors, { columns: labels, rows: labels, x_name: "predicted", y_name: "true" }, cells, [0, 1], percent, {
      shades: [mix(colors.card, colors.muted, 0.06), ...Array(9).fill().map((_, at) => mix(colors.card, colors.accent, 0.2 + 0.1 * at))],
      xAxis: { axisLabel: { ...names.axisLabel, rotate: 90 } },
      yAxis: { ...names, inverse: true },
    });
  },

  improvement({ difference, interval, margin, metric }, colors) {
    const [low, high] = ends([...interval, difference, margin]);
    const space = 0.05 * (high - low) || 1;
    return {
      grid: grid(),
      xAxis: axis(colors, `improvement of ${metric}`, { min: low - space, max: high + space, axisLabel: { showMinLabel: false, showMaxLabel: false } }),
      yAxis: { type: "value", min: -1, max: 1, show: false },
      series: [
        { ...dashes(colors, [[margin, -1], [margin, 1]], colors.text) },
        { type: "line", silent: true, symbol: "none", data: interval.map((end) => [end, 0]), lineStyle: { color: colors.accent, width: 3 } },
        dots(colors, [[difference, 0]], { symbolSize: 12, itemStyle: { color: colors.accent } }),
      ],
      tooltip: tooltip(colors, () => [`${rounded(difference, 4)}, 95 % interval ${rounded(interval[0], 4)} to ${rounded(interval[1], 4)}`, `min_improvement ${tick(margin)}`]),
    };
  },
};

/** Return the color between two others; `share` 0 is the first one. */
function mix(first, second, share) {
  const parts = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
  const other = parts(second);
  return `rgb(${parts(first).map((part, at) => Math.round(part + share * (other[at] - part))).join(",")})`;
}

const redraws = new Map(); // element -> function that draws its chart again

/** Draw the chart of an element beside its values, which stay there. */
async function draw(box) {
  if (redraws.has(box)) return;
  redraws.set(box, () => {});
  const values = JSON.parse(box.querySelector("script").textContent);
  if (!globalThis.echarts) await import(box.dataset.library);
  const chart = globalThis.echarts.init(box.querySelector(".drawing"), null, { devicePixelRatio: Math.max(2, devicePixelRatio) });
  const redraw = () => {
    chart.resize();
    const option = builders[box.dataset.chart](values, palette());
    chart.setOption({ animation: false, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily }, ...option }, true);
  };
  redraws.set(box, redraw);
  redraw();
  if (box.dataset.chart === "parallel") chart.on("axisareaselected", () => tellSelection(box, chart, values.trials));
  const resized = new ResizeObserver(() => {
    if (box.isConnected) return chart.resize();
    resized.disconnect();
    redraws.delete(box);
    chart.dispose();
  });
  resized.observe(box);
}

/** Dispatch the numbers of the trials that are selected on the axes. */
function tellSelection(box, chart, trials) {
  const active = new Set(chart.getModel().getSeriesByIndex(0).getRawIndicesByActiveState("active"));
  const all = active.size === 0 || active.size === trials.length;
  const numbers = [...trials].reverse().filter((_, at) => !all && active.has(at)).map((trial) => trial.number);
  box.dispatchEvent(new CustomEvent("trialsselected", { bubbles: true, detail: numbers }));
}

function redrawAll() {
  for (const redraw of redraws.values()) redraw();
}

const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    draw(target);
  }
}, { rootMargin: "200px" });

/** Make room for each chart, and draw it when it comes into view. */
function watchCharts() {
  for (const box of document.querySelectorAll("[data-chart]:not(:has(.drawing))")) {
    const drawing = document.createElement("div");
    drawing.className = "drawing";
    drawing.style.height = `${box.dataset.height}px`;
    box.append(drawing);
    watcher.observe(box);
  }
}

watchCharts();
document.addEventListener("chartschanged", watchCharts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
new MutationObserver(redrawAll).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
// On paper, all charts are drawn in light colors and at the width of the paper.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("paper");
  for (const box of document.querySelectorAll("[data-chart]")) draw(box);
  redrawAll();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("paper");
  redrawAll();
});
