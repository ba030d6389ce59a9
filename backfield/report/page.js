"use strict";
// Tables sort by a click on a heading; numbers by value, the rest by text.
for (const head of document.querySelectorAll("[data-sort]")) {
  head.tabIndex = 0;
  const sort = () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const order = head.dataset.order === "-1" ? 1 : -1;
    for (const other of head.parentElement.cells) delete other.dataset.order;
    head.dataset.order = order;
    const value = row => {
      const text = row.cells[column].textContent, number = parseFloat(text.replace(/,/g, ""));
      return isNaN(number) ? (text === "–" ? -Infinity : text.toLowerCase()) : number;
    };
    const rows = [...body.rows].map(row => [value(row), row]);
    rows.sort(([a], [b]) => order * (a < b ? -1 : a > b ? 1 : 0));
    body.append(...rows.map(([, row]) => row));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
}

// The viewer: one picture, large; left and right flip through layers, up and down go to other examples.
const viewer = document.getElementById("viewer"), articles = [...document.querySelectorAll("article[data-example]")];
const visible = () => articles.filter(article => !article.hidden);
let current, layer = 0;
function show(article, number) {
  const pictures = [...article.querySelectorAll("img")];
  current = article;
  layer = (number + pictures.length) % pictures.length;
  viewer.querySelector("strong").textContent = [...article.querySelector("h3").childNodes].map(part => part.textContent).join(", ");
  viewer.querySelector("img").src = pictures[layer].src;
  viewer.querySelector("nav").replaceChildren(...pictures.map((picture, k) => {
    const button = document.createElement("button");
    button.textContent = picture.alt;
    button.className = k === layer ? "on" : "";
    button.onclick = () => show(article, k);
    return button;
  }));
  if (!viewer.open) viewer.showModal();
}
for (const article of articles)
  for (const button of article.querySelectorAll("button.open"))
    button.addEventListener("click", () => show(article, +button.dataset.layer));
viewer.querySelector("header button").addEventListener("click", () => viewer.close());
viewer.addEventListener("click", event => { if (event.target === viewer) viewer.close(); });
viewer.addEventListener("keydown", event => {
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const shown = visible(), place = (shown.indexOf(current) + step[1] + shown.length) % shown.length;
  show(shown[place], layer + step[0]);
});
for (const row of document.querySelectorAll("tr[data-example]")) {
  const article = articles.find(each => each.dataset.example === row.dataset.example);
  if (!article) continue;
  row.classList.add("shown");
  row.addEventListener("click", () => show(article, 0));
}

// A click on a cell of the confusion matrix shows the examples that have this confusion.
const cells = JSON.parse(document.getElementById("cells")?.textContent ?? "{}"), filter = document.querySelector(".filter");
function restrict(cell, title) {
  const wanted = cell && cells[cell] ? new Set(cells[cell].map(String)) : null;
  for (const item of document.querySelectorAll("[data-example]"))
    item.hidden = wanted !== null && !wanted.has(item.dataset.example);
  for (const rect of document.querySelectorAll("[data-cell]"))
    rect.classList.toggle("chosen", wanted !== null && rect.dataset.cell === cell);
  if (!filter) return;
  filter.hidden = wanted === null;
  filter.querySelector("span").textContent = wanted === null ? "" :
    `${title}: ${wanted.size} examples, ${visible().length} with pictures.`;
  if (wanted !== null) filter.scrollIntoView({ behavior: "smooth", block: "center" });
}
for (const rect of document.querySelectorAll("[data-cell]"))
  rect.addEventListener("click", () => cells[rect.dataset.cell] && restrict(rect.dataset.cell, rect.textContent.split(":")[0]));
filter?.querySelector("button").addEventListener("click", () => restrict(null, ""));
