// What overflows can be scrolled by keys, and what is a landmark or a dialog has a name.
document$.subscribe(() => {
  for (const box of document.querySelectorAll("pre, pre > code, .md-typeset__scrollwrap, .highlight-ipynb")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const nav of document.querySelectorAll("nav.md-nav[aria-labelledby]")) {
    if (document.getElementById(nav.getAttribute("aria-labelledby"))?.textContent.trim()) continue;
    const name = nav.parentElement.querySelector("a.md-nav__link")?.textContent.trim();
    if (name) {
      nav.removeAttribute("aria-labelledby");
      nav.setAttribute("aria-label", name);
    }
  }
});

// The theme adds buttons to blocks of code when these come into sight.
let blocks = 0;
new MutationObserver(() => {
  for (const nav of document.querySelectorAll("nav.md-code__nav:not([aria-label])")) {
    blocks += 1;
    nav.setAttribute("aria-label", `Code ${blocks}`);
  }
}).observe(document.body, { childList: true, subtree: true });
