// Draws the charts of the report whose JSON is in #report-data with Chart.js.
(() => {
  "use strict";
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const number = (v) => (typeof v === "number" ? v : NaN); // {"number": "nan"} and the like leave a gap
  const points = (s) => s.y.map((y, i) => ({ x: number(s.x[i]), y: number(y), label: s.labels[i] || "" }));

  // A name keeps its colour, dash and symbol in all charts of the page.
  const order = [...new Set(report.charts.flatMap((c) => c.series.map((s) => s.name)))];
  const dashes = [[], [8, 5], [3, 3], [10, 3, 3, 3]];
  const symbols = ["circle", "rectRot", "triangle", "rect", "rectRounded", "star", "cross", "crossRot"];
  const look = (name) => {
    const i = order.indexOf(name);
    return { color: css(`--series-${i % 8}`), dash: dashes[i % 4], symbol: symbols[i % 8] };
  };

  const superscript = (n) => String(n).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || "⁻");
  const plain = (v) => new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(v);
  const binade = (v) => [0, 1].map((up) => `2${superscript(Math.floor(Math.log2(v)) + up)}`).join(" to ");
  const compact = (v) => new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" }).format(v);
  // The title of a vertical axis reads upwards, so that the arrows point the right way there too.
  function axisTitle(axis) {
    const title = axis.title + (axis.unit ? ` (${axis.unit})` : "");
    return axis.better === "higher" ? `${title}  better →` : axis.better === "lower" ? `← better  ${title}` : title;
  }

  // Smallest and largest finite value, or null; spreading long curves into Math.min() would overflow the stack.
  function extent(values) {
    let low = Infinity, high = -Infinity;
    for (const v of values) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
    return low <= high ? { low, high } : null;
  }

  // Range and ticks of a logarithmic axis; Chart.js alone would write unevenly many and start at odd values.
  function logAxis(axis, values) {
    const base = axis.scale === "log2" ? 2 : 10;
    const range = extent(values.filter((v) => v > 0));
    if (!range) return { type: "logarithmic" };
    const lg = (v) => Math.log(v) / Math.log(base);
    let low = lg(axis.minimum ?? range.low), high = lg(axis.maximum ?? range.high);
    const pad = Math.max((high - low) * 0.12, base === 2 ? 0.4 : 0.12);
    low = axis.minimum == null ? low - pad : low;
    high = axis.maximum == null ? high + pad : high;
    const between = (mantissas, step) => {
      const ticks = [];
      for (let e = Math.floor(low / step) * step; e <= high; e += step) {
        for (const m of mantissas) {
          const value = m * base ** e;
          if (lg(value) >= low && lg(value) <= high) ticks.push({ value, e });
        }
      }
      return ticks;
    };
    // As many ticks as there is room for, each a round number.
    let ticks = [];
    const choose = (room) => {
      const sets = base === 10 ? [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3]] : [];
      ticks = sets.map((set) => between(set, 1)).find((t) => t.length <= room) ??
        between([1], Math.max(1, Math.ceil((high - low) / room)));
    };
    const text = (t) => (base === 2 && (t.e > 9 || t.e < -3) ? `2${superscript(t.e)}` : plain(t.value));
    return {
      type: "logarithmic", min: base ** low, max: base ** high,
      afterBuildTicks: (scale) => {
        choose(scale.isHorizontal() ? Math.min(9, scale.chart.width / 75) : 9);
        scale.ticks = ticks.map((t) => ({ value: t.value }));
      },
      ticks: { callback: (v, i) => text(ticks[i]), autoSkip: false, maxRotation: 0 },
    };
  }

  function linearAxis(axis, values, pad) {
    const range = extent(values);
    const out = { type: "linear", ticks: { maxRotation: 0, maxTicksLimit: 8, includeBounds: false } };
    if (axis.minimum != null) out.min = axis.minimum;
    if (axis.maximum != null) out.max = axis.maximum;
    if (pad && range) {
      const { low, high } = range;
      const room = (high - low || Math.abs(high) * 0.1 || 1) * pad;
      // Padding must not invent negative sizes or times.
      out.suggestedMin = low >= 0 ? Math.max(0, low - room) : low - room;
      out.suggestedMax = high + room;
    }
    return out;
  }

  function scaleOf(axis, values, pad) {
    const own = axis.scale === "linear" ? linearAxis(axis, values, pad) : logAxis(axis, values);
    return {
      ...own,
      title: { display: axis.title !== "", text: axisTitle(axis), color: css("--muted"), font: { size: 13 } },
      grid: { color: css("--grid"), borderColor: css("--line"), tickColor: css("--line") },
      ticks: { ...own.ticks, color: css("--muted"), font: { size: 12 } },
    };
  }

  // Centred moving average: it neither lags behind nor, as its window narrows at the ends, bends there.
  function smooth(data, weight) {
    const sums = [0], counts = [0];
    for (const { y } of data) {
      sums.push(sums.at(-1) + (Number.isFinite(y) ? y : 0));
      counts.push(counts.at(-1) + (Number.isFinite(y) ? 1 : 0));
    }
    const full = Math.round(1 / (1 - Math.min(weight, 0.9999)));
    return data.map(({ x }, i) => {
      const half = Math.max(Math.ceil(full / 8), Math.min(full, i, data.length - 1 - i));
      const first = Math.max(0, i - half), end = Math.min(data.length, i + half + 1);
      return { x, y: (sums[end] - sums[first]) / (counts[end] - counts[first]) };
    });
  }

  function lineDatasets(chart) {
    const several = chart.series.length > 1;
    const line = (s, data, extra) => ({
      label: s.name, data, borderColor: look(s.name).color, backgroundColor: look(s.name).color, borderWidth: 2.2,
      borderDash: several ? look(s.name).dash : [], pointRadius: data.length > 40 ? 0 : 2.5, pointHitRadius: 8, pointStyle: "circle",
      stepped: chart.kind === "step" ? "before" : false, borderJoinStyle: "round", ...extra,
    });
    if (!(chart.smoothing > 0)) return chart.series.map((s, i) => line(s, points(s), { order: -i }));
    const faint = (s) => line(s, points(s), {
      borderColor: look(s.name).color + "38", borderWidth: 1, borderDash: [], pointRadius: 0, pointHitRadius: 0, order: 1, faint: true,
    });
    return [
      ...chart.series.map((s, i) => line(s, smooth(points(s), chart.smoothing), { pointRadius: 0, order: -i })),
      ...chart.series.map(faint),
    ];
  }

  const histogramDatasets = (chart) => chart.series.map((s) => ({
    label: s.name, data: points(s), borderColor: look(s.name).color, backgroundColor: look(s.name).color + "40", borderWidth: 1.8,
    fill: "origin", stepped: "middle", pointRadius: 0, pointHitRadius: 8,
  }));

  const scatterDatasets = (chart) => chart.series.map((s) => ({
    label: s.name, data: points(s), backgroundColor: look(s.name).color, borderColor: look(s.name).color, order: s.joined ? 1 : 0,
    pointStyle: look(s.name).symbol, pointRadius: s.joined ? 0 : 6.5, pointHoverRadius: s.joined ? 0 : 8, borderWidth: 2,
    pointHitRadius: s.joined ? 0 : 1, showLine: s.joined, borderDash: s.joined ? look(s.name).dash : [], joined: s.joined,
  }));

  const barDatasets = (chart) => chart.series.map((s) => ({
    label: s.name, data: s.y.map(number), backgroundColor: look(s.name).color, borderRadius: 3, maxBarThickness: 64,
    categoryPercentage: 0.84, barPercentage: 0.9,
  }));

  const rangeDatasets = (chart) => chart.series.map((s) => ({
    label: s.name, data: s.y.map((y, i) => ({ x: [number(s.x[i]), number(y)], y: s.labels[i] })), backgroundColor: look(s.name).color,
    grouped: false, maxBarThickness: 18, borderSkipped: false, borderRadius: 2,
  }));

  function write(ctx, text, x, y, align) {
    ctx.textAlign = align;
    ctx.strokeStyle = css("--surface");
    ctx.lineWidth = 4;
    ctx.lineJoin = "round";
    ctx.strokeText(text, x, y);
    ctx.fillStyle = css("--text");
    ctx.fillText(text, x, y);
  }

  const overlap = (a, b) =>
    Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
    Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));

  // Where a label of width w and height h may stand around its point: near first, then further out with a leader.
  function candidates(p, w, h) {
    const out = [];
    for (const gap of [11, 26, 44, 64]) {
      for (const [dx, dy] of [[1, 0], [0, -1], [-1, 0], [0, 1], [1, -1], [1, 1], [-1, -1], [-1, 1]]) {
        const d = dx && dy ? gap * 0.75 : gap;
        const cx = p.x + dx * (d + w / 2), cy = p.y + dy * (d + h / 2);
        out.push({ left: cx - w / 2, right: cx + w / 2, top: cy - h / 2, bottom: cy + h / 2, cx, cy, far: gap > 11, cost: out.length });
      }
    }
    return out;
  }

  // Chooses for every label the place that overlaps least, then looks again a few times knowing the others.
  function placeLabels(area, labels, marks) {
    const outside = (b) => Math.max(0, area.left - b.left) + Math.max(0, b.right - area.right) +
      Math.max(0, area.top - b.top) + Math.max(0, b.bottom - area.bottom);
    for (let round = 0; round < 4; ++round) {
      for (const label of labels) {
        let least = Infinity, best = null;
        for (const box of label.candidates) {
          let cost = box.cost + outside(box) * 1000;
          for (const mark of marks) cost += overlap(box, mark) * 10;
          for (const other of labels) if (other !== label && other.box) cost += overlap(box, other.box) * 20;
          if (cost < least) { least = cost; best = box; }
        }
        label.box = best;
      }
    }
  }

  const pointLabels = {
    id: "pointLabels",
    afterDatasetsDraw(chart) {
      const ctx = chart.ctx, labels = [], marks = [];
      ctx.save();
      ctx.font = `600 13px ${Chart.defaults.font.family}`;
      ctx.textBaseline = "middle";
      chart.data.datasets.forEach((set, d) => chart.getDatasetMeta(d).data.forEach((p, i) => {
        if (!chart.isDatasetVisible(d) || set.joined) return;
        marks.push({ left: p.x - 8, right: p.x + 8, top: p.y - 8, bottom: p.y + 8 });
        const text = set.data[i].label;
        if (text) labels.push({ text, p, candidates: candidates(p, ctx.measureText(text).width + 2, 16) });
      }));
      placeLabels(chart.chartArea, labels, marks);
      for (const { text, p, box } of labels) {
        if (box.far) {
          const x = Math.min(Math.max(p.x, box.left), box.right), y = Math.min(Math.max(p.y, box.top), box.bottom);
          ctx.strokeStyle = css("--muted");
          ctx.lineWidth = 1;
          ctx.beginPath();
          ctx.moveTo(p.x, p.y);
          ctx.lineTo(x, y);
          ctx.stroke();
        }
        write(ctx, text, box.cx, box.cy, "center");
      }
      ctx.restore();
    },
  };

  // Marked ranges lie behind the curves; what they say stands at the top, where a word fits into its range.
  const bandMarks = (bands) => ({
    id: "bandMarks",
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales: { x } } = chart;
      const pixel = (value, edge) => (value == null ? edge : Math.min(Math.max(x.getPixelForValue(value), area.left), area.right));
      ctx.save();
      ctx.textAlign = "center";
      ctx.textBaseline = "top";
      for (const band of bands) {
        const left = pixel(band.from, area.left), right = pixel(band.to, area.right), width = right - left;
        if (width <= 0) continue;
        ctx.fillStyle = css(band.warn ? "--warn" : "--band");
        ctx.fillRect(left, area.top, width, area.bottom - area.top);
        ctx.strokeStyle = css("--muted");
        ctx.lineWidth = 1;
        ctx.setLineDash([4, 4]);
        for (const edge of [band.from == null ? null : left, band.to == null ? null : right]) {
          if (edge == null || width < 8) continue; // a single step, say: its edges would be all there is to see
          ctx.beginPath();
          ctx.moveTo(edge, area.top);
          ctx.lineTo(edge, area.bottom);
          ctx.stroke();
        }
        ctx.setLineDash([]);
        const lines = [[band.label, "600 12px", "--text"], [band.detail, "12px", "--muted"]];
        const each = (write) => lines.map(([text, font, color], i) => {
          ctx.font = `${font} ${Chart.defaults.font.family}`;
          ctx.fillStyle = css(color);
          return write(text, i);
        });
        if (Math.max(...each((text) => ctx.measureText(text).width)) > width - 6) continue;
        each((text, i) => ctx.fillText(text, left + width / 2, area.top + 7 + i * 17));
      }
      ctx.restore();
    },
  });

  const barValues = {
    id: "barValues",
    afterDatasetsDraw(chart) {
      const ctx = chart.ctx;
      ctx.save();
      ctx.font = `600 11px ${Chart.defaults.font.family}`;
      ctx.textBaseline = "bottom";
      const shown = chart.data.datasets.flatMap((set, d) => chart.isDatasetVisible(d)
        ? chart.getDatasetMeta(d).data.map((bar, i) => ({ bar, value: set.data[i] })) : []).filter((b) => Number.isFinite(b.value));
      // All values or none, in the longest form that fits over every bar.
      const form = [plain, compact].find((f) => shown.every((b) => ctx.measureText(f(b.value)).width <= b.bar.width / 0.9 + 2));
      if (form) shown.forEach((b) => write(ctx, form(b.value), b.bar.x, b.bar.y - 4, "center"));
      ctx.restore();
    },
  };

  // What Chart.js offers forgets dashes and follows the drawing order.
  function legendItems(chart, line, filled) {
    const sets = chart.data.datasets;
    return Chart.defaults.plugins.legend.labels.generateLabels(chart)
      .filter((item) => !sets[item.datasetIndex].faint)
      .sort((a, b) => a.datasetIndex - b.datasetIndex)
      .map((item) => ({
        ...item,
        ...(line && { pointStyle: "line", lineWidth: 2.2, lineDash: sets[item.datasetIndex].borderDash }),
        ...(filled && { pointStyle: "rect" }),
        ...(sets[item.datasetIndex].joined && { pointStyle: "line", lineWidth: 2, lineDash: sets[item.datasetIndex].borderDash }),
      }));
  }

  function legendOptions(display, line, bars) {
    return {
      display, align: "start",
      labels: {
        color: css("--text"), usePointStyle: true, pointStyleWidth: line ? 34 : 12, boxHeight: 9, padding: 16, font: { size: 13 },
        generateLabels: (c) => legendItems(c, line, bars),
      },
    };
  }

  function rangeConfiguration(chart) {
    const ends = chart.series.flatMap((s) => [...s.x, ...s.y].map(number));
    const x = scaleOf(chart.x, ends, 0), y = scaleOf(chart.y, [], 0);
    const rows = [...new Set(chart.series.flatMap((s) => s.labels))];
    Object.assign(y, { type: "category", labels: rows, grid: { ...y.grid, display: false } });
    y.ticks.autoSkip = false;
    return {
      type: "bar", data: { datasets: rangeDatasets(chart), labels: rows },
      options: {
        indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false, scales: { x, y }, layout: { padding: { right: 10 } },
        plugins: {
          legend: legendOptions(chart.series.length > 1, false, true),
          tooltip: { callbacks: { label: (item) => ` ${item.dataset.label}: ${item.raw.x.map((v) => v.toPrecision(4)).join(" to ")} ${chart.x.unit}` } },
        },
      },
    };
  }

  function configuration(chart) {
    if (chart.kind === "ranges") return rangeConfiguration(chart);
    const scatter = chart.kind === "scatter", bars = chart.kind === "bars", histogram = chart.kind === "histogram";
    const line = !scatter && !bars;
    const datasets = (scatter ? scatterDatasets : bars ? barDatasets : histogram ? histogramDatasets : lineDatasets)(chart);
    const values = (key) => chart.series.flatMap((s) => s[key].map(number));
    // Labels beside the points already say what a legend would.
    const named = scatter && chart.series.every((s) => s.labels.length > 0);
    const legend = chart.series.length > 1 && !named;
    const ends = histogram && extent(values("x")); // bins fill the width
    const x = scaleOf(ends ? { ...chart.x, minimum: chart.x.minimum ?? ends.low, maximum: chart.x.maximum ?? ends.high } : chart.x,
      values("x"), scatter ? 0.22 : 0);
    const y = scaleOf(chart.y, values("y"), scatter ? 0.3 : 0);
    if (bars) {
      const ticks = { ...x.ticks, maxRotation: 45, autoSkip: false }; // long labels turn rather than overlap
      Object.assign(x, { type: "category", grid: { ...x.grid, display: false }, ticks });
    }
    if (bars && chart.y.scale === "linear") Object.assign(y, { beginAtZero: true, grace: "8%" });
    if (histogram) {
      Object.assign(y, { beginAtZero: true, grace: chart.bands.length > 0 ? "50%" : "10%" }); // room for what the bands say
    }
    const run = line && chart.x.scale === "linear" && extent(values("x"));
    if (run) Object.assign(x, { min: chart.x.minimum ?? run.low, max: chart.x.maximum ?? run.high }); // curves fill the width
    return {
      type: bars ? "bar" : scatter ? "scatter" : "line",
      data: { datasets, labels: bars ? chart.series[0]?.labels : undefined },
      plugins: [...(scatter ? [pointLabels] : bars ? [barValues] : []), ...(chart.bands.length > 0 ? [bandMarks(chart.bands)] : [])],
      options: {
        animation: false, parsing: line ? false : undefined, responsive: true, maintainAspectRatio: false, scales: { x, y }, layout: { padding: { right: 10 } },
        interaction: line ? { mode: "nearest", axis: "x", intersect: false } : { mode: "nearest", intersect: true },
        plugins: {
          decimation: { enabled: chart.kind === "line", algorithm: "lttb", samples: 600, threshold: 1200 },
          legend: legendOptions(legend, line && !histogram, bars || histogram),
          subtitle: { display: legend, text: "", weight: 500, padding: 3, font: { size: 4 } }, // room below the legend
          tooltip: {
            filter: (item) => !item.dataset.faint,
            callbacks: {
              title: (items) => (bars ? items[0]?.label : items[0] && `${chart.x.title} ${histogram && chart.x.scale === "log2" ? binade(items[0].parsed.x) : plain(items[0].parsed.x)}`),
              label: (item) => ` ${item.raw.label || item.dataset.label}: ${plain(item.parsed.y)} ${chart.y.unit}`,
            },
          },
        },
      },
    };
  }

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  let drawn = [];
  function draw() {
    drawn.forEach((c) => c.destroy());
    drawn = report.charts.map((c, i) => new Chart(document.getElementById(`chart-${i}`), configuration(c)));
  }
  draw();
  addEventListener("resize", () => drawn.forEach((c) => c.resize())); // at once: Chart.js alone waits a frame or two
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // Paper is white whatever the screen is.
  addEventListener("beforeprint", () => { root.classList.add("printing"); draw(); });
  addEventListener("afterprint", () => { root.classList.remove("printing"); draw(); });
})();
