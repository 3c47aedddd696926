"use strict";
// Tables that sort, hint at what is cut off, and can be saved; folded sections; light and dark.
const collm = (() => {
  const cell = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));

  function csv(rows) {
    return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function save(text, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name.replace(/[^\w.-]+/g, "-");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function key(node) {
    if (node.dataset.value !== undefined) return Number(node.dataset.value.replace("inf", "Infinity"));
    const number = /^-?[\d,]*\.?\d+/.exec(node.textContent);
    return number ? Number(number[0].replaceAll(",", "")) : node.textContent;
  }

  function sort(table, column, sign) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: key(row.cells[column]), isEmpty: row.cells[column].textContent === "-" }));
    rows.sort((a, b) => a.isEmpty - b.isEmpty || sign * (typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key || 0 : String(a.key).localeCompare(String(b.key))));
    body.append(...rows.map(({ row }) => row));
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  for (const box of document.querySelectorAll(".table")) {
    const table = box.querySelector("table"), wide = box.querySelector(".wide");
    box.querySelectorAll(".sort").forEach((button, column) => button.addEventListener("click", () => {
      // Numbers from the greatest down, names from A: what is wanted first.
      const now = button.parentElement.getAttribute("aria-sort");
      sort(table, column, now === null ? (column ? -1 : 1) : now === "ascending" ? -1 : 1);
    }));
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "CSV";
    button.className = "screen";
    button.addEventListener("click", () => save(csv([...table.rows].map((row) => [...row.cells].map((each) => each.textContent))), box.querySelector("h3").textContent + ".csv"));
    const hint = document.createElement("span");
    hint.className = "hint screen";
    hint.textContent = "scroll sideways for more columns →";
    const foot = document.createElement("p");
    foot.className = "foot";
    foot.append(button, hint);
    box.append(foot);
    const look = () => box.classList.toggle("cut", wide.scrollLeft + wide.clientWidth < wide.scrollWidth - 2);
    wide.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(wide);
  }

  function reveal() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target || null; node; node = node.parentElement) if (node instanceof HTMLDetailsElement) node.open = true;
    if (target) target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  for (const link of document.querySelectorAll('a[href^="#"]')) link.addEventListener("click", () => setTimeout(reveal));
  reveal();

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not(#episodes, #episodes *)")].filter((each) => !each.open);
    for (const each of folded) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of folded) each.open = false; });

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = getComputedStyle(root).colorScheme === "dark" || (getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    root.style.colorScheme = isDark ? "light" : "dark";
  });
  return { csv, save };
})();
