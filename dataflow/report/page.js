// Makes each table sortable by a click on a header, and adds a filter above it.
"use strict";

const UNITS = { "": 1, B: 1 };
["k", "M", "G", "T"].forEach((letter, index) => {
  UNITS[`${letter}B`] = 1000 ** (index + 1);
  UNITS[`${letter.toUpperCase()}iB`] = 1024 ** (index + 1);
});

// The number that a cell begins with, in bytes if it has such a unit; a little less after "<"; NaN if there is none.
function numberOf(cell) {
  const match = cell.textContent.match(/^(<?)(\d[\d,]*(?:\.\d+)?)\s*([A-Za-z]*)/);
  if (!match || cell.classList.contains("text")) return NaN;
  return Number(match[2].replaceAll(",", "")) * (UNITS[match[3]] ?? 1) * (match[1] ? 0.999 : 1);
}

// Numbers by value. Cells without a number come last in both directions.
function compare(one, other, sign) {
  const [left, right] = [numberOf(one), numberOf(other)];
  if (!Number.isNaN(left) && !Number.isNaN(right)) return sign * (left - right);
  if (Number.isNaN(left) !== Number.isNaN(right)) return Number.isNaN(left) ? 1 : -1;
  return sign * one.textContent.localeCompare(other.textContent);
}

for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      rows.sort((one, other) => compare(one.cells[column], other.cells[column], sign));
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });

  const filter = document.createElement("p");
  filter.innerHTML = '<input type="search" placeholder="filter: words that a line must contain"> <output></output>';
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  table.replaceWith(filter, scroll);
  scroll.append(table);
  const update = () => {
    const words = filter.querySelector("input").value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    filter.querySelector("output").value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} lines`;
  };
  filter.querySelector("input").addEventListener("input", update);
  update();
}
