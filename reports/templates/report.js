"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const tip = document.getElementById("tip");
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));

  // the elements of each cell: squares, points, rows
  const marks = new Map();
  for (const each of all("[data-cell]")) {
    const id = each.dataset.cell;
    if (!marks.has(id)) marks.set(id, []);
    marks.get(id).push(each);
  }
  // a native tooltip would stand beside ours; what it says is in aria-label
  for (const title of all("[data-cell] > title, .square > title")) title.remove();

  function choose(id, { remember = true } = {}) {
    const panel = document.getElementById(id);
    if (!panel || !panel.classList.contains("panel")) return null;
    const section = panel.closest(".setting");
    for (const old of all(".shown", section)) {
      old.classList.remove("shown");
      if (old.hasAttribute("aria-pressed")) old.setAttribute("aria-pressed", "false");
    }
    panel.classList.add("shown");
    for (const mark of marks.get(id) || []) {
      mark.classList.add("shown");
      if (mark.getAttribute("role") === "button") mark.setAttribute("aria-pressed", "true");
    }
    if (remember) try { history.replaceState(null, "", "#" + id); } catch { /* some browsers refuse it for files */ }
    return panel;
  }

  function show(mark) {
    const panel = choose(mark.dataset.cell);
    if (!panel) return;
    const box = panel.getBoundingClientRect();
    if (box.bottom < 80 || box.top > innerHeight - 80) panel.scrollIntoView({ block: "start" });
  }

  function point(mark, x, y) {
    tip.textContent = mark.getAttribute("aria-label") || "";
    const picture = mark.dataset.cell && document.querySelector("#" + mark.dataset.cell + " .montage");
    if (picture) tip.append(picture.cloneNode(true));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? x - box.width - 16 : x + 16;
    const top = Math.min(y + 16, innerHeight - box.height - 8);
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = Math.max(8, top) + "px";
  }

  function hover(id, on) {
    for (const mark of marks.get(id) || []) mark.classList.toggle("hover", on);
  }

  for (const [id, list] of marks) {
    for (const mark of list) {
      const row = mark.tagName === "TR";
      mark.addEventListener("click", (event) => { event.preventDefault(); show(mark); });
      mark.addEventListener("pointerenter", (event) => {
        hover(id, true);
        if (!row && event.pointerType === "mouse") point(mark, event.clientX, event.clientY);
      });
      mark.addEventListener("pointerleave", () => { hover(id, false); tip.hidden = true; });
      if (row) continue;  // its first cell is a link
      mark.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show(mark); }
      });
      mark.setAttribute("aria-pressed", "false");
      mark.addEventListener("focus", () => {
        hover(id, true);
        if (!mark.matches(":focus-visible")) return;
        const box = mark.getBoundingClientRect();
        point(mark, box.right, box.bottom);
      });
      mark.addEventListener("blur", () => { hover(id, false); tip.hidden = true; });
    }
  }
  for (const square of all(".square:not([data-cell])")) {
    square.addEventListener("pointerenter", (event) => point(square, event.clientX, event.clientY));
    square.addEventListener("pointerleave", () => { tip.hidden = true; });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // one stop of the Tab key a map or plot; arrows go on from there, to what lies nearest in their direction
  const steps = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  const middle = (mark) => {
    const box = (mark.querySelector("rect, .target") || mark).getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  function walkable(chart) {
    const stops = all("[data-cell]", chart);
    stops.forEach((stop, index) => stop.setAttribute("tabindex", index ? "-1" : "0"));
    chart.addEventListener("keydown", (event) => {
      const step = steps[event.key];
      const here = event.target.closest("[data-cell]");
      if (!step || !here) return;
      event.preventDefault();
      const [x, y] = middle(here);
      const ahead = stops
        .map((stop) => {
          const [dx, dy] = [middle(stop)[0] - x, middle(stop)[1] - y];
          return { stop, along: dx * step[0] + dy * step[1], aside: Math.abs(dx * step[1]) + Math.abs(dy * step[0]) };
        })
        .filter((each) => each.along > 0.5)
        .sort((a, b) => a.along + 3 * a.aside - (b.along + 3 * b.aside));
      if (!ahead.length) return;
      here.setAttribute("tabindex", "-1");
      ahead[0].stop.setAttribute("tabindex", "0");
      ahead[0].stop.focus();
    });
  }
  all("svg.heat, svg.plot").forEach(walkable);

  // maps over another pair of axes: the squares move to their places there
  for (const choice of all(".choice")) {
    const family = choice.closest(".family-charts");
    choice.hidden = false;
    choice.querySelector("select").addEventListener("change", (event) => {
      const maps = family.querySelector(".maps");
      const squares = new Map(all("[data-square]", maps).map((square) => [square.dataset.square, square]));
      const fresh = family.querySelector(`template[data-pair="${event.target.value}"]`).content.cloneNode(true);
      for (const slot of all("[data-slot]", fresh)) {
        const square = squares.get(slot.dataset.slot);
        square.setAttribute("transform", slot.getAttribute("transform"));
        slot.replaceWith(square);
      }
      maps.replaceChildren(fresh);
      all("svg.heat", maps).forEach(walkable);
    });
  }

  // tables that sort by a click on their head
  for (const table of all("table.runs")) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const falling = head.getAttribute("aria-sort") === "ascending";
        for (const other of heads) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", falling ? "descending" : "ascending");
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].dataset.key;
        const rows = Array.from(body.rows).sort((one, other) => {
          const a = key(one), b = key(other);
          if (a === "" || b === "") return (a === "") - (b === "");  // what was not measured stays last
          const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
          return falling ? -order : order;
        });
        body.append(...rows);
      });
    });
  }

  addEventListener("beforeprint", () => { for (const facts of all("details.facts")) facts.open = true; });
  for (const hint of all(".hint")) hint.hidden = false;
  for (const section of all(".setting[data-selected]")) choose(section.dataset.selected, { remember: false });
  const asked = () => choose(location.hash.slice(1), { remember: false });
  addEventListener("hashchange", asked);
  if (/^#s\d+c\d+$/.test(location.hash)) asked();
})();
