// Sorts, filters, and switches axes; everything else of the page is plain HTML and charts.
"use strict";

for (const data of document.querySelectorAll(".data")) {
  const body = data.querySelector("tbody");
  const rows = [...body.rows];
  const heads = [...data.querySelectorAll("th")];

  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      rows.sort((one, other) => compare(one.cells[column], other.cells[column], sign));
      body.append(...rows);
    });
  });

  const field = data.querySelector("input");
  const filter = () => {
    const wanted = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
    }
    data.querySelector("output").value = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  if (field) {
    field.addEventListener("input", filter);
    filter();
  }
}

// Numbers by their value; in either direction, what has no number stands last.
function compare(one, other, sign) {
  const [left, right] = [one.dataset.value, other.dataset.value];
  if (left !== undefined && right !== undefined) return sign * (left - right);
  if (left !== undefined || right !== undefined) return left === undefined ? 1 : -1;
  return sign * one.textContent.localeCompare(other.textContent);
}

for (const box of document.querySelectorAll("input[data-chart]")) {
  const change = () => Plotly.relayout(box.dataset.chart, { "xaxis.type": box.checked ? "log" : "linear" });
  box.addEventListener("change", change);
  if (box.checked) change(); // a browser keeps the state of a box when the page is loaded again
}
