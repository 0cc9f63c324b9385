"""What a page does by itself: sort tables, copy them, choose methods, change its colours."""

from __future__ import annotations

SCRIPT = """
(function () {
  "use strict";
  var root = document.documentElement;
  function stored(value) {
    try {
      if (value === undefined) return localStorage.getItem("leanbayes-theme");
      localStorage.setItem("leanbayes-theme", value);
    } catch (error) { return null; }
  }
  root.classList.add("js");
  var kept = stored();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  var theme = document.querySelector("button.theme");
  theme.hidden = false;
  theme.addEventListener("click", function () {
    var system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    var next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
    root.dataset.theme = next;
    stored(next);
  });
  addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (each) { each.open = true; });
  });
  function key(row, at) {
    var text = row.cells[at].dataset.value;
    var value = text === "" ? NaN : Number(text);
    return { text: text, value: value };
  }
  function compare(a, b) {
    if (!isNaN(a.value) && !isNaN(b.value)) return a.value - b.value;
    return a.text.localeCompare(b.text);
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    var heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach(function (head, at) {
      head.querySelector("button").addEventListener("click", function () {
        var up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(function (other) { other.setAttribute("aria-sort", "none"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        var rows = Array.from(table.tBodies[0].rows).map(function (row) {
          return { row: row, key: key(row, at) };
        });
        rows.sort(function (a, b) {
          if ((a.key.text === "") !== (b.key.text === "")) return a.key.text === "" ? 1 : -1;
          return up ? compare(a.key, b.key) : compare(b.key, a.key);
        });
        rows.forEach(function (item) { table.tBodies[0].appendChild(item.row); });
      });
    });
  });
  function show(key, on) {
    document.querySelectorAll('[data-m="' + key + '"]').forEach(function (each) {
      each.classList.toggle("off", !on);
      if (each.tagName !== "g") return;
      var all = each.parentNode;
      if (on) all.appendChild(each);
      else all.insertBefore(each, all.querySelector(".method"));
    });
    document.querySelectorAll('input[data-for="' + key + '"]').forEach(function (box) {
      box.checked = on;
    });
  }
  document.querySelectorAll(".chooser input").forEach(function (box) {
    box.addEventListener("change", function () { show(box.dataset.for, box.checked); });
  });
  document.querySelectorAll("button.some").forEach(function (button) {
    button.hidden = false;
    button.addEventListener("click", function () {
      var all = button.dataset.some === "all";
      button.parentNode.querySelectorAll("input").forEach(function (box) {
        show(box.dataset.for, all || box.dataset.first === "1");
      });
    });
  });
  var links = {};
  document.querySelectorAll("nav a").forEach(function (link) {
    links[link.hash.slice(1)] = link;
  });
  if (window.IntersectionObserver) {
    var seen = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        var link = links[entry.target.id];
        if (link) link.classList.toggle("here", entry.isIntersecting);
      });
    }, { rootMargin: "-15% 0px -75% 0px" });
    document.querySelectorAll("section").forEach(function (each) { seen.observe(each); });
  }
  document.querySelectorAll("button.copy").forEach(function (button) {
    button.addEventListener("click", function () {
      var area = button.nextElementSibling, words = button.textContent;
      function done() {
        button.textContent = "Copied";
        setTimeout(function () { button.textContent = words; }, 1500);
      }
      function by_hand() {
        area.hidden = false;
        area.select();
        if (document.execCommand("copy")) { area.hidden = true; done(); }
      }
      if (navigator.clipboard) navigator.clipboard.writeText(area.value).then(done, by_hand);
      else by_hand();
    });
  });
})();
"""
