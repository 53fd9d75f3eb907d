// A result: examples behind the cells of the confusion matrix, and charts by the vendored ECharts.

for (const button of document.querySelectorAll("[data-cell]")) {
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    for (const other of document.querySelectorAll("[data-cell]")) {
      const shown = other === button && open;
      other.setAttribute("aria-expanded", shown);
      document.getElementById(other.getAttribute("aria-controls")).hidden = !shown;
    }
  });
}

/** Return a CSS variable as a color that a canvas understands. */
function color(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function palette() {
  return Object.fromEntries(["text", "muted", "line", "accent", "card", "good"].map((name) => [name, color(name)]));
}

const short = (value) =>
  typeof value !== "number" ? String(value)
    : Math.abs(value) >= 1e4 ? value.toLocaleString("en", { maximumSignificantDigits: 4 })
      : Number(value.toPrecision(4)).toString();
const clipped = (text, length = 18) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function axes(colors) {
  return {
    axisLine: { lineStyle: { color: colors.line } },
    axisTick: { lineStyle: { color: colors.line } },
    axisLabel: { color: colors.muted, fontSize: 11, formatter: (value) => clipped(short(value), 14) },
    splitLine: { lineStyle: { color: colors.line } },
  };
}

const GRID = { left: 8, right: 16, top: 12, bottom: 8, containLabel: true };

const options = {
  parallel(model, colors, { metric, best }) {
    const isBest = (trial) => String(trial.number) === best;
    model.trials.sort((a, b) => isBest(a) - isBest(b)); // the last line is drawn above the others
    const names = [...model.names, metric];
    const columns = names.map((name, at) => model.trials.map((trial) => (at < model.names.length ? trial.params[name] : trial.value)));
    const lines = axes(colors);
    Object.assign(lines.axisLabel, { backgroundColor: colors.card, padding: [1, 3] }); // readable on the lines
    const parallelAxis = names.map((name, dim) => {
      const numbers = columns[dim].every((value) => typeof value === "number");
      const log = model.logs.includes(name) && columns[dim].every((value) => value > 0);
      const ends = numbers ? { min: Math.min(...columns[dim]), max: Math.max(...columns[dim]) } : {};
      if (numbers && ends.min === ends.max) Object.assign(ends, { min: ends.min - Math.abs(ends.min) / 100 || -1 });
      return {
        ...lines, ...ends, dim, name: clipped(name), type: numbers ? (log ? "log" : "value") : "category",
        data: numbers ? undefined : [...new Set(columns[dim].map(String))].sort(),
        nameTextStyle: { color: dim === names.length - 1 ? colors.accent : colors.text, fontWeight: dim === names.length - 1 ? 700 : 400 },
        areaSelectStyle: { color: colors.accent, borderColor: colors.accent, opacity: 0.2, width: 16 },
      };
    });
    const data = model.trials.map((trial, at) => ({
      value: columns.map((column, dim) => (parallelAxis[dim].type === "category" ? String(column[at]) : column[at])),
      lineStyle: isBest(trial) ? { color: colors.good, width: 3, opacity: 1 } : undefined,
    }));
    return {
      parallel: { left: 50, right: 60, top: 36, bottom: 16 },
      parallelAxis,
      series: [{ type: "parallel", data, lineStyle: { color: colors.accent, width: 1.4, opacity: 0.45 }, inactiveOpacity: 0.06, activeOpacity: 0.9, smooth: false }],
    };
  },
  importance(shares, colors) {
    const entries = Object.entries(shares).reverse();
    return {
      grid: { ...GRID, right: 44 },
      xAxis: { ...axes(colors), type: "value", max: 1, axisLabel: { color: colors.muted, formatter: (share) => `${Math.round(100 * share)} %` } },
      yAxis: { ...axes(colors), type: "category", data: entries.map(([name]) => name), splitLine: { show: false } },
      series: [{ type: "bar", data: entries.map(([, share]) => share), barMaxWidth: 18, itemStyle: { color: colors.accent },
        label: { show: true, position: "right", color: colors.text, formatter: ({ value }) => `${Math.round(100 * value)} %` } }],
    };
  },
  scatter({ truth, predicted }, colors) {
    return {
      grid: { ...GRID, top: 24, right: 40 },
      xAxis: { ...axes(colors), type: "value", scale: true, name: "true", nameTextStyle: { color: colors.muted } },
      yAxis: { ...axes(colors), type: "value", scale: true, name: "predicted", nameTextStyle: { color: colors.muted } },
      series: [{ type: "scatter", symbolSize: 5, itemStyle: { color: colors.accent, opacity: 0.5 }, data: truth.map((value, at) => [value, predicted[at]]) }],
    };
  },
  residuals({ middle, rows }, colors) {
    return {
      grid: GRID,
      xAxis: { ...axes(colors), type: "category", data: middle.map(short) },
      yAxis: { ...axes(colors), type: "value" },
      series: [{ type: "bar", data: rows, barCategoryGap: "8%", itemStyle: { color: colors.accent } }],
    };
  },
};

/** Mark the trials in the leaderboard that are selected on the axes. */
function markSelected(chart, model) {
  const series = chart.getModel().getSeriesByIndex(0);
  const active = new Set(series.getRawIndicesByActiveState("active"));
  const all = active.size === 0 || active.size === model.trials.length;
  const numbers = new Set(model.trials.filter((_, at) => active.has(at)).map((trial) => String(trial.number)));
  for (const row of document.querySelectorAll("[data-trial]")) row.classList.toggle("selected", !all && numbers.has(row.dataset.trial));
}

async function draw(box) {
  const { init } = await import(box.dataset.library);
  const values = JSON.parse(box.dataset.values);
  const kind = box.dataset.chart;
  const chart = init(box, null, { renderer: "canvas" });
  const show = () => chart.setOption({
    animation: false, textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
    ...options[kind](values, palette(), box.dataset),
  }, true);
  show();
  if (kind === "parallel") chart.on("axisareaselected", () => markSelected(chart, values));
  new ResizeObserver(() => chart.resize()).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  new MutationObserver(show).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
}

// Charts are drawn when they come into view: the library is read only by pages that need it.
const watcher = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    draw(target);
  }
}, { rootMargin: "200px" });
for (const box of document.querySelectorAll("[data-chart]")) watcher.observe(box);
