"use strict";
// Episodes: a list that draws only what is seen, search, addresses, and an episode or two side by side.
(() => {
  const ROW = 44;
  const { runs, index, chunkSize } = JSON.parse(document.getElementById("index").textContent);
  const element = (id) => document.getElementById(id);
  const list = element("list"), spacer = element("spacer"), detail = element("episode");
  const filters = { environment: element("by-environment"), algorithm: element("by-algorithm"), run_seed: element("by-seed") };
  const order = element("order"), section = element("episodes");
  const search = element("search"), inPrompts = element("in-prompts"), unfolded = element("unfolded"), contrast = element("contrast");
  const total = index.run.length;
  const unpacked = new Map(), searchable = new Map();
  let shown = [];
  let selected = -1;
  let found = null; // numbers of the episodes that hold the words searched for; null: no search
  let searching = 0; // counts searches, so that one overtaken by the next one stops

  function made(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  const number = (value) => (value === null || value === undefined ? "–" : String(Math.round(value * 1000) / 1000));

  function unpack(chunk) {
    const bytes = Uint8Array.from(atob(element("chunk-" + chunk).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  async function episode(which) {
    const chunk = Math.floor(which / chunkSize);
    if (!unpacked.has(chunk)) {
      unpacked.set(chunk, unpack(chunk));
      if (unpacked.size > 30) unpacked.delete(unpacked.keys().next().value);
    }
    return (await unpacked.get(chunk))[which % chunkSize];
  }

  const needle = () => search.value.trim().toLowerCase();

  // What was written and what was read in each episode of a chunk, kept once it was searched.
  async function texts(chunk) {
    if (!searchable.has(chunk)) {
      searchable.set(chunk, (await unpack(chunk)).map((content) => {
        const records = Object.values(content.agents), turns = records.flatMap((record) => record.turns);
        const read = [...turns.flatMap((turn) => turn.read), ...records.flatMap((record) => record.last_read)];
        return [turns.map((turn) => turn.wrote), read.map(([, text]) => text)].map((each) => each.join("\n").toLowerCase());
      }));
    }
    return searchable.get(chunk);
  }

  async function look() {
    const mine = ++searching, words = needle(), readsPrompts = inPrompts.checked;
    if (!words) {
      found = null;
      choose();
      return;
    }
    const hits = new Set();
    for (let start = 0; start < total; start += chunkSize) {
      const contents = await texts(start / chunkSize);
      if (mine !== searching) return;
      contents.forEach(([wrote, read], i) => { if (wrote.includes(words) || (readsPrompts && read.includes(words))) hits.add(start + i); });
      element("count").textContent = `searching, ${Math.round((100 * start) / total)} %`;
    }
    found = hits;
    choose();
  }

  function fill(select, name) {
    select.append(new Option("all", ""));
    for (const value of [...new Set(runs.map((run) => run[name]))]) select.append(new Option(value, value));
  }

  function choose() {
    const fits = runs.map((run) => Object.entries(filters).every(([name, select]) => !select.value || String(run[name]) === select.value));
    shown = [];
    for (let i = 0; i < total; i++) if (fits[index.run[i]] && (found === null || found.has(i))) shown.push(i);
    const sign = { best: -1, worst: 1 }[order.value];
    if (sign) shown.sort((a, b) => sign * (index.return[a] - index.return[b]) || a - b);
    else shown.sort((a, b) => index.update[a] - index.update[b] || a - b);
    spacer.style.height = shown.length * ROW + "px";
    element("count").textContent = shown.length + (shown.length === 1 ? " episode" : " episodes");
    list.scrollTop = 0;
    select(shown.length ? 0 : -1);
  }

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW) + 8);
    const rows = [];
    for (let place = first; place < last; place++) {
      const which = shown[place], run = runs[index.run[which]];
      const row = made("div", "row");
      row.id = "row-" + place;
      row.style.top = place * ROW + "px";
      row.setAttribute("role", "option");
      row.setAttribute("aria-selected", place === selected);
      row.setAttribute("aria-setsize", shown.length);
      row.setAttribute("aria-posinset", place + 1);
      row.append(made("b", "", number(index.return[which])), made("span", "", run.algorithm + " · update " + index.update[which]));
      row.append(made("span", "where", run.environment + " · seed " + run.run_seed));
      row.addEventListener("click", () => select(place, true));
      rows.push(row);
    }
    spacer.replaceChildren(...rows);
  }

  async function select(place, isAsked = false) {
    selected = place;
    if (place < 0) {
      draw();
      list.removeAttribute("aria-activedescendant");
      detail.replaceChildren(made("p", "note", total ? "No episode fits the filters." : "No episodes were kept."));
      return;
    }
    const top = place * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    draw();
    list.setAttribute("aria-activedescendant", "row-" + place);
    const which = shown[place];
    if (isAsked) history.replaceState(null, "", "#episode-" + which);
    const wanted = contrast.getAttribute("aria-pressed") === "true" ? ends(index.run[which]) : [which];
    const contents = await Promise.all(wanted.map(episode));
    if (selected !== place || shown[place] !== which) return;
    const box = made("div", wanted.length > 1 ? "pair" : "");
    contents.forEach((content, i) => {
      const one = made("article");
      one.append(...parts(content, runs[index.run[wanted[i]]], wanted[i], wanted.length > 1 ? ["first of the run", "last of the run"][i] + " · " : ""));
      box.append(one);
    });
    detail.replaceChildren(box);
    highlight();
  }

  // The first and the last episode of a run that the page has.
  function ends(run) {
    let first = -1, last = -1;
    for (let i = 0; i < total; i++) {
      if (index.run[i] !== run) continue;
      if (first < 0 || index.update[i] < index.update[first]) first = i;
      if (last < 0 || index.update[i] >= index.update[last]) last = i;
    }
    return first === last ? [first] : [first, last];
  }

  function highlight() {
    if (!("highlights" in CSS)) return;
    const words = needle(), ranges = [];
    if (words) {
      const walker = document.createTreeWalker(detail, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const text = node.data.toLowerCase();
        for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, Math.min(node.length, at + words.length));
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  }

  function parts(content, run, which, role) {
    const heading = made("h3", "", run.algorithm + " · " + run.environment + " · seed " + run.run_seed + " ");
    const link = made("a", "", "link");
    link.href = "#episode-" + which;
    link.setAttribute("aria-label", "link to this episode");
    heading.append(link);
    const parts = [heading];
    parts.push(made("p", "note", role + "update " + content.update + " · return " + number(content.return) + " · task seed " + content.seed));
    const agents = Object.entries(content.agents);
    const turns = content.infos.length;
    for (let t = 0; t < turns; t++) {
      const turn = made("div", "turn");
      turn.append(made("p", "turn-name", "Turn " + (t + 1) + " of " + turns));
      const columns = made("div", "agents");
      for (const [name, record] of agents) {
        const own = record.turns.find((each, i) => (each.time ?? i) === t);
        if (own) columns.append(column(name, own, run.language));
      }
      turn.append(columns);
      turn.append(numbers(content.infos[t] || {}, "numbers terms"));
      if (content.scenes && content.scenes[t + 1]) turn.append(scene(content.scenes[t + 1], content.palette));
      parts.push(turn);
    }
    const last = agents.filter(([, record]) => record.last_read.length);
    if (last.length) {
      const turn = made("div", "turn");
      turn.append(made("p", "turn-name", "After the last turn"));
      const columns = made("div", "agents");
      for (const [name, record] of last) {
        const box = made("div", "agent");
        box.append(made("h4", "", name));
        for (const [author, text] of record.last_read) box.append(read(author, text));
        columns.append(box);
      }
      turn.append(columns);
      parts.push(turn);
    }
    return parts;
  }

  function column(name, turn, language) {
    const box = made("div", "agent");
    box.append(made("h4", "", name));
    for (const [author, text] of turn.read) box.append(read(author, text));
    const wrote = made("pre", "wrote");
    if (language === "python") {
      wrote.classList.add("code");
      wrote.append(...highlighted(turn.wrote));
    } else wrote.textContent = turn.wrote;
    box.append(wrote);
    const shownNumbers = {};
    for (const key of ["reward", "value", "advantage", "logprob", "entropy"]) if (turn[key] !== undefined) shownNumbers[key] = turn[key];
    const line = numbers(shownNumbers, "numbers");
    if (turn.is_cut) line.append(made("span", "", "cut at the token limit"));
    box.append(line);
    return box;
  }

  function read(author, text) {
    const node = made("details", "read");
    node.open = unfolded.checked;
    const start = text.trim().replace(/\s+/g, " ");
    node.append(made("summary", "", author + ": " + (start.length > 70 ? start.slice(0, 70) + "…" : start)), made("pre", "", text));
    return node;
  }

  function numbers(values, className) {
    const line = made("p", className);
    for (const [name, value] of Object.entries(values)) {
      const item = made("span", "", name.replace(/^(reward|metric)\//, (kind) => (kind === "reward/" ? "term " : "")) + " ");
      item.append(made("b", "", number(value)));
      line.append(item);
    }
    return line;
  }

  const TOKENS = /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(def|class)(\s+)(\w+)|\b(and|as|assert|async|await|break|continue|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False)\b|\b(\d[\w.]*)\b/g;

  function highlighted(code) {
    const parts = [];
    let end = 0;
    for (const match of code.matchAll(TOKENS)) {
      parts.push(code.slice(end, match.index));
      const [whole, comment, string, definition, space, name, keyword] = match;
      if (comment) parts.push(made("span", "c", comment));
      else if (string) parts.push(made("span", "s", string));
      else if (definition) parts.push(made("span", "k", definition), space, made("span", "d", name));
      else parts.push(made("span", keyword ? "k" : "n", whole));
      end = match.index + whole.length;
    }
    parts.push(code.slice(end));
    return parts;
  }

  function scene(rows, palette) {
    const box = made("div", "scene");
    const svgNode = (name, attributes) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      return node;
    };
    for (const [caption, layers, wrong] of rows) {
      const figure = made("figure");
      figure.append(made("figcaption", "", caption.toLowerCase()));
      const cell = 14, gap = 12;
      let left = 0, height = 0;
      const svg = svgNode("svg", { role: "img", "aria-label": caption.toLowerCase() });
      layers.forEach((layer, number) => {
        layer.forEach((line, y) => line.forEach((kind, x) => {
          svg.append(svgNode("rect", { x: left + x * cell, y: y * cell, width: cell - 1, height: cell - 1, fill: palette[kind] || "#c850c8" }));
          if (wrong[number] && wrong[number][y][x]) {
            const a = left + x * cell + 3, b = y * cell + 3, far = cell - 7;
            svg.append(svgNode("path", { d: `M${a} ${b}l${far} ${far}m0 ${-far}l${-far} ${far}`, stroke: "#dc1e1e", "stroke-width": 2 }));
          }
        }));
        left += Math.max(...layer.map((line) => line.length)) * cell + gap;
        height = Math.max(height, layer.length * cell);
      });
      svg.setAttribute("viewBox", `0 0 ${left - gap} ${height}`);
      svg.setAttribute("width", left - gap);
      svg.setAttribute("height", height);
      figure.append(svg);
      box.append(figure);
    }
    return box;
  }

  function arrange(value) {
    order.value = value;
    choose();
  }

  function toggle() {
    contrast.setAttribute("aria-pressed", contrast.getAttribute("aria-pressed") !== "true");
    select(selected);
  }

  // The episode that the address names, whatever the filters say.
  function follow() {
    const asked = /^#episode-(\d+)$/.exec(location.hash);
    if (!asked || Number(asked[1]) >= total) return;
    const which = Number(asked[1]);
    section.open = true;
    if (!shown.includes(which)) {
      for (const each of Object.values(filters)) each.value = "";
      search.value = "";
      searching++;
      found = null;
      choose();
    }
    select(shown.indexOf(which));
    section.scrollIntoView();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLSelectElement || event.target instanceof HTMLInputElement) {
      if (event.key === "Escape" && section.contains(event.target)) list.focus();
      return;
    }
    const inList = event.target === list;
    const page = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const move = { j: 1, k: -1 }[event.key] ?? (inList ? { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -shown.length, End: shown.length }[event.key] : undefined);
    if (move === undefined && !"bwtf/".includes(event.key)) return;
    section.open = true;
    if (move !== undefined) {
      if (shown.length) select(Math.min(shown.length - 1, Math.max(0, selected + move)), true);
    } else if (event.key === "b") arrange("best");
    else if (event.key === "w") arrange("worst");
    else if (event.key === "t") arrange("time");
    else if (event.key === "f") toggle();
    else search.focus();
    event.preventDefault();
  });

  for (const [name, select] of Object.entries(filters)) {
    fill(select, name);
    select.addEventListener("change", choose);
  }
  order.addEventListener("change", choose);
  contrast.addEventListener("click", toggle);
  unfolded.addEventListener("change", () => { for (const each of detail.querySelectorAll(".read")) each.open = unfolded.checked; });
  let waiting = 0;
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(look, 200); };
  search.addEventListener("input", soon);
  inPrompts.addEventListener("change", soon);
  list.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(list);
  addEventListener("hashchange", follow);
  choose();
  follow();
})();
