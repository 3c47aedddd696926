"use strict";
// The page's figures, drawn by Observable Plot from the packed numbers of `charts.py`.
(async () => {
  const DASHES = ["", "7,3", "2,2", "9,3,2,3"];
  const FEW = 4; // curves that can be told apart at first sight
  const packed = Uint8Array.from(atob(document.getElementById("charts").textContent), (c) => c.charCodeAt(0));
  const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  const { methods, colours, sections } = data;

  // Light strokes on dark paper: the same hues, mixed with white.
  colours.forEach((colour, i) =>
    document.documentElement.style.setProperty(`--m${i}`, `light-dark(${colour}, color-mix(in oklab, ${colour} 62%, white))`));
  const colour = (method) => `var(--m${methods.indexOf(method) % colours.length})`;
  const dash = (method) => DASHES[methods.indexOf(method) % DASHES.length];

  const state = { shown: new Set(), against: data.reference, cost: Object.keys(data.costs)[0], smoothing: data.smoothing, logX: false, logY: false, seeds: false };
  const ranked = (sections.headline[0]?.series ?? []).map((entry) => entry.method);
  for (const method of [data.reference, ...ranked, ...methods]) if (methods.includes(method) && state.shown.size < FEW) state.shown.add(method);

  const made = (name, attributes = {}, ...content) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "onclick" || key === "onchange" || key === "oninput") node[key] = value;
      else if (value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...content);
    return node;
  };
  const said = (value) => (value === null || value === undefined ? "never" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3))));
  const estimate = (entry) => said(entry.value) + (entry.runs && entry.runs.length < 2 ? " (one run)" : ` [${said(entry.low)}, ${said(entry.high)}]`);
  const width = (names) => Math.min(190, 16 + 7.2 * Math.max(4, ...names.map((name) => name.length)));
  const short = (name) => (name.length > 24 ? name.slice(0, 23) + "…" : name);

  // Curves: the same arithmetic as statistics.py, done here so that smoothing is at hand.
  function smoothed(values, size) {
    let sum = 0;
    return values.map((value, i) => {
      sum += value - (i >= size ? values[i - size] : 0);
      return sum / Math.min(i + 1, size);
    });
  }
  function at(costs, values, x) {
    const right = d3.bisectLeft(costs, x);
    if (right === 0) return values[0];
    if (right >= costs.length) return values[values.length - 1];
    const share = (x - costs[right - 1]) / (costs[right] - costs[right - 1]);
    return values[right - 1] + share * (values[right] - values[right - 1]);
  }
  function meanCurve(runs, cost, size, quantiles) {
    const curves = runs.map((run) => ({ costs: run.costs[cost], values: smoothed(run.y, size) }));
    const start = d3.max(curves, (each) => each.costs[0]), end = d3.min(curves, (each) => each.costs[each.costs.length - 1]);
    if (!(end >= start)) return [];
    return d3.range(100).map((i) => {
      const x = start + (i / 99) * (end - start);
      const values = curves.map((each) => at(each.costs, each.values, x));
      const value = d3.mean(values);
      const half = values.length > 1 ? (quantiles[values.length - 2] * d3.deviation(values)) / Math.sqrt(values.length) : 0;
      return { method: runs[0].method, x, value, low: value - half, high: value + half };
    });
  }

  const common = { style: { fontSize: "12px", overflow: "visible" }, marginTop: 24, marginBottom: 40, marginRight: 24 };
  const tip = (x, y) => ({ x, y, title: "said", fontSize: 12, fill: "var(--paper)", stroke: "var(--soft)" });

  function rows(chart, size, { limit = null, zero = null, paint = (entry) => colour(entry.method), label = chart.x } = {}) {
    const names = chart.series.map((entry) => entry.method);
    const never = limit === null ? null : 1.08 * limit;
    const place = (value) => (value === null ? never : value);
    const entries = chart.series.map((entry) => ({ ...entry, value: place(entry.value), low: place(entry.low), high: place(entry.high), said: `${entry.method}\n${estimate(entry)}` }));
    const runs = entries.flatMap((entry) => (entry.runs ?? []).map((run) => ({ method: entry.method, x: place(run) })));
    // A return before training that is far away would press all intervals into a corner.
    const ends = d3.extent(entries.flatMap((entry) => [entry.value, entry.low, entry.high]).concat(runs.map((run) => run.x)).filter((x) => x !== null));
    const isNear = chart.level !== null && Math.min(...ends.map((end) => Math.abs(end - chart.level))) < ends[1] - ends[0];
    const isLined = limit === null && zero === null && isNear;
    if (limit === null && zero === null && chart.level !== null) label += isLined ? ` (dotted: ${said(chart.level)} before training)` : ` (before training: ${said(chart.level)})`;
    const bars = entries.filter((entry) => entry.low !== null && (entry.runs === undefined || entry.runs.length > 1));
    const svg = Plot.plot({
      ...common,
      width: size,
      marginTop: 8,
      marginBottom: 24,
      height: 40 + 30 * names.length,
      marginLeft: width(names.map(short)),
      x: { label: null, grid: true, nice: limit === null, insetLeft: 8, insetRight: 8, ticks: Math.max(3, Math.floor(size / 110)), ...(limit === null ? {} : { domain: [0, 1.12 * limit] }) },
      y: { domain: names, label: null, tickFormat: short, tickSize: 0 },
      marks: [
        limit === null ? null : Plot.rectX([0], { x1: 1.04 * limit, x2: 1.12 * limit, fill: "var(--soft)", fillOpacity: 0.18 }),
        isLined ? Plot.ruleX([chart.level], { stroke: "var(--soft)", strokeDasharray: "2,3" }) : null,
        zero === null ? null : Plot.ruleX([zero], { stroke: "currentColor" }),
        Plot.barX(bars, { x1: "low", x2: "high", y: "method", fill: paint, fillOpacity: 0.45, insetTop: 7, insetBottom: 9, rx: 2 }),
        Plot.dot(runs, { x: "x", y: "method", dy: 9, r: 2.4, fill: paint, fillOpacity: 0.8 }),
        Plot.tickX(entries, { x: "value", y: "method", stroke: "currentColor", strokeWidth: 2.5, insetTop: 4, insetBottom: 6 }),
        Plot.tip(entries, Plot.pointerY(tip("value", "method"))),
      ],
    });
    svg.dataset.label = label; // below the figure, where a long one can break
    return svg;
  }

  function strokes(points, size, chart, options) {
    const groups = d3.groups(points, (point) => point.method);
    return Plot.plot({
      ...common,
      width: size,
      height: Math.round(Math.min(360, Math.max(230, size * 0.68))),
      marginLeft: 48,
      grid: true,
      ...options,
      marks: [
        ...(options.marks ?? []),
        ...groups.map(([method, each]) => Plot.areaY(each, { x: "x", y1: "low", y2: "high", fill: colour(method), fillOpacity: 0.15, clip: true })),
        ...groups.map(([method, each]) => Plot.line(each, { x: "x", y: "value", stroke: colour(method), strokeWidth: 2, strokeDasharray: dash(method), clip: true })),
        Plot.dot(points, Plot.pointer({ x: "x", y: "value", r: 4, fill: (point) => colour(point.method) })),
        Plot.tip(points, Plot.pointer(tip("x", "value"))),
      ],
    });
  }

  const drawn = {
    intervals: (chart, size) => rows(chart, size),
    costs: (chart, size) => rows(chart, size, { limit: chart.level }),
    differences(chart, size) {
      const series = againstOne(chart);
      const paint = (entry) => (entry.low > 0 ? "var(--above)" : entry.high < 0 ? "var(--below)" : "var(--soft)");
      return rows({ ...chart, series }, size, { zero: 0, paint, label: `${state.against} minus the other →` });
    },
    curves(chart, size) {
      const cost = chart.series.some((run) => run.costs[state.cost]) ? state.cost : "environment_steps";
      const runs = chart.series.filter((run) => state.shown.has(run.method));
      let points = d3.groups(runs, (run) => run.method).flatMap(([, each]) => meanCurve(each, cost, state.smoothing, chart.quantiles));
      if (state.logX) points = points.filter((point) => point.x > 0);
      if (state.logY) points = points.filter((point) => point.value > 0);
      for (const point of points) point.said = `${point.method}\n${said(point.x)} ${data.costs[cost]}\n${said(point.value)} [${said(point.low)}, ${said(point.high)}]`;
      // Bands of two or three seeds can be wider than all returns; the picture is of the means.
      const [low, high] = d3.extent(points, (point) => point.value);
      const margin = Math.max(0.05, 0.6 * (high - low));
      const y = state.logY ? { type: "log", domain: [low / 1.3, high * 1.3], ticks: 5 } : { domain: [low - margin, high + margin] };
      if (state.logY) for (const point of points) point.low = Math.max(point.low, low / 1.3);
      const own = state.seeds
        ? runs.map((run) => Plot.line(run.costs[cost].map((x, i) => ({ x, y: smoothed(run.y, state.smoothing)[i] })).filter((point) => (!state.logX || point.x > 0) && (!state.logY || point.y > 0)),
          { x: "x", y: "y", stroke: colour(run.method), strokeOpacity: 0.45, strokeWidth: 0.8, clip: true }))
        : [];
      return strokes(points, size, chart, { x: { label: data.costs[cost], type: state.logX ? "log" : "linear", ticks: 5, tickFormat: (x) => (x >= 1000 ? d3.format("~s")(x) : said(x)) }, y: { label: chart.y, ...(points.length ? y : {}) }, marks: own });
    },
    lines(chart, size) {
      const points = chart.series.filter((entry) => state.shown.has(entry.method)).flatMap((entry) =>
        entry.x.map((x, i) => ({ method: entry.method, x, value: entry.value[i], low: entry.low[i], high: entry.high[i], said: `${entry.method}\n${said(entry.value[i])} of runs above ${said(x)}` })));
      return strokes(points, Math.min(size, 760), chart, { x: { label: chart.x }, y: { label: chart.y, domain: [0, 1] } });
    },
    turns(chart, size) {
      const series = chart.series.filter((entry) => state.shown.has(entry.method));
      const turns = d3.max(chart.series, (entry) => d3.max(entry.x)) ?? 1;
      const points = series.flatMap((entry, i) => entry.x.map((x, j) => ({
        method: entry.method, x: x + 0.05 * (i - (series.length - 1) / 2), value: entry.value[j], low: entry.value[j] - entry.spread[j], high: entry.value[j] + entry.spread[j],
        said: `${entry.method}, turn ${x}\n${said(entry.value[j])} ± ${said(entry.spread[j])}`,
      })));
      const groups = d3.groups(points, (point) => point.method);
      return Plot.plot({
        ...common, width: size, height: 250, marginLeft: 52, grid: true,
        x: { label: chart.x, domain: [0.6, turns + 0.4], ticks: d3.range(1, turns + 1), tickFormat: "d" },
        y: { label: chart.y, nice: true },
        marks: [
          Plot.ruleY([0], { stroke: "var(--soft)" }),
          ...groups.flatMap(([method, each]) => [
            Plot.ruleX(each, { x: "x", y1: "low", y2: "high", stroke: colour(method), strokeWidth: 1.5 }),
            Plot.line(each, { x: "x", y: "value", stroke: colour(method), strokeWidth: 2, strokeDasharray: dash(method) }),
            Plot.dot(each, { x: "x", y: "value", fill: colour(method), r: 3.5 }),
          ]),
          Plot.tip(points, Plot.pointer(tip("x", "value"))),
        ],
      });
    },
  };

  function againstOne(chart) {
    return chart.series.flatMap((entry) =>
      entry.method === state.against ? [{ ...entry, method: entry.other }]
        : entry.other === state.against ? [{ ...entry, value: -entry.value, low: entry.high === null ? null : -entry.high, high: entry.low === null ? null : -entry.low }] : []);
  }

  // What the figures are made of, one line per number, for a spreadsheet or another plotting library.
  const records = {
    intervals: (chart) => chart.series.flatMap((entry) => [
      { method: entry.method, what: "estimate", value: entry.value, low: entry.low, high: entry.high },
      ...entry.runs.map((run) => ({ method: entry.method, what: "run", value: run }))]),
    costs: (chart) => records.intervals(chart),
    differences: (chart) => chart.series.map(({ method, other, value, low, high }) => ({ method, minus: other, value, low, high })),
    curves: (chart) => chart.series.flatMap((run) => run.y.map((y, i) => ({
      method: run.method, seed: run.seed, ...Object.fromEntries(Object.entries(run.costs).map(([cost, column]) => [data.costs[cost], column[i]])), [chart.y]: y }))),
    lines: (chart) => chart.series.flatMap((entry) => entry.x.map((x, i) => ({ method: entry.method, [chart.x]: x, [chart.y]: entry.value[i], low: entry.low[i], high: entry.high[i] }))),
    turns: (chart) => chart.series.flatMap((entry) => entry.x.map((x, i) => ({ method: entry.method, turn: x, [chart.y]: entry.value[i], deviation: entry.spread[i] }))),
  };
  function csv(charts) {
    const lines = charts.flatMap((chart) => records[chart.kind](chart).map((record) => ({ figure: chart.title, ...record })));
    const columns = [...new Set(lines.flatMap((line) => Object.keys(line)))];
    return collm.csv([columns, ...lines.map((line) => columns.map((name) => line[name] ?? ""))]);
  }

  function chips(redraw) {
    const box = made("div", { class: "chips", role: "group", "aria-label": "Methods" });
    for (const method of methods) {
      const tick = made("input", { type: "checkbox", "data-method": method, onchange: () => {
        if (tick.checked) state.shown.add(method); else state.shown.delete(method);
        redraw();
      } });
      const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      line.setAttribute("width", 26); line.setAttribute("height", 10); line.setAttribute("aria-hidden", "true");
      const stroke = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [name, value] of Object.entries({ x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 3, "stroke-dasharray": dash(method) })) stroke.setAttribute(name, value);
      stroke.style.stroke = colour(method);
      line.append(stroke);
      box.append(made("label", {}, tick, line, method));
    }
    const several = (label, chosen) => made("button", { type: "button", onclick: () => { state.shown = new Set(chosen); redraw(); } }, label);
    if (methods.length > 1) box.append(several("all", methods), several("none", []));
    return box;
  }

  function controls(title, charts) {
    const kind = charts[0].kind, redraw = () => drawAll();
    const tick = (label, name) => made("label", { class: "tick" }, made("input", { type: "checkbox", "data-state": name, onchange: (event) => { state[name] = event.target.checked; redraw(); } }), " " + label);
    const chooser = (label, name, options) => {
      const select = made("select", { "data-state": name, onchange: (event) => { state[name] = event.target.value; redraw(); } });
      for (const [value, text] of options) select.append(new Option(text, value, false, value === state[name]));
      return made("label", {}, label + " ", select);
    };
    const found = [];
    if (["curves", "lines", "turns"].includes(kind)) found.push(chips(redraw));
    if (kind === "differences") found.push(chooser("Method", "against", methods.map((name) => [name, name])));
    if (kind === "curves") {
      const costs = Object.entries(data.costs).filter(([cost]) => charts.some((chart) => chart.series.some((run) => run.costs[cost])));
      const size = made("output", {}, String(state.smoothing));
      const slider = made("input", { type: "range", min: 1, max: 40, value: state.smoothing, oninput: () => { state.smoothing = Number(slider.value); size.textContent = slider.value; redraw(); } });
      const isPositive = charts.every((chart) => chart.series.every((run) => run.y.every((y) => y > 0)));
      const logY = tick("log returns", "logY");
      if (!isPositive) { logY.firstChild.disabled = true; logY.title = "some returns are 0 or less"; }
      found.push(chooser("Against", "cost", costs), made("label", {}, "Smoothing, points ", made("span", {}, slider, size)), tick("log cost", "logX"), logY, tick("each seed", "seeds"));
    }
    found.push(made("button", { type: "button", onclick: () => collm.save(csv(charts), `${title}.csv`) }, "CSV"));
    return made("div", { class: "filters controls screen" }, ...found);
  }

  function described(chart) {
    if (!["intervals", "costs"].includes(chart.kind)) return `${chart.title}: ${chart.y || chart.x} by method`;
    return `${chart.title}, ${chart.x}: ` + chart.series.map((entry) => `${entry.method} ${estimate(entry)}`).join("; ");
  }

  const boxes = new Map();
  function draw(box) {
    const charts = sections[box.dataset.section] ?? [];
    if (!charts.length || !box.clientWidth) return;
    let grid = box.querySelector(".figures");
    if (!grid) {
      grid = made("div", { class: "figures" });
      const isWide = ["headline"].includes(box.dataset.section);
      box.append(...(isWide ? [grid, controls(box.dataset.section, charts)] : [controls(box.dataset.section, charts), grid]));
      for (const chart of charts) grid.append(made("figure", {}, made("figcaption", {}, chart.title), made("div", { class: "plot" }), made("p", { class: "axis" })));
    }
    const sizes = [...grid.querySelectorAll(".plot")].map((place) => place.clientWidth);
    charts.forEach((chart, i) => {
      const svg = drawn[chart.kind](chart, Math.max(260, sizes[i]));
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", described(chart));
      // Plot names the groups within, which are no elements of their own to a reader of an image.
      for (const group of svg.querySelectorAll("g[aria-label]")) group.removeAttribute("aria-label");
      grid.querySelectorAll(".plot")[i].replaceChildren(svg);
      grid.querySelectorAll(".axis")[i].textContent = svg.dataset.label ?? "";
    });
    for (const tick of box.querySelectorAll("[data-method]")) tick.checked = state.shown.has(tick.dataset.method);
    boxes.set(box, box.clientWidth);
  }
  function drawAll() {
    for (const box of boxes.keys()) if (box.clientWidth) draw(box);
  }

  const watcher = new ResizeObserver((entries) => {
    for (const { target } of entries) if (target.clientWidth && boxes.get(target) !== target.clientWidth) draw(target);
  });
  for (const box of document.querySelectorAll(".charts")) watcher.observe(box);
  addEventListener("beforeprint", () => { for (const box of document.querySelectorAll(".charts")) draw(box); });
})();
