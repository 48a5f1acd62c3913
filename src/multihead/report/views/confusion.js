// The confusion matrix as a heat map: right answers grey, errors in colour, by their share of the row. Labels
// stay in sight while it scrolls; the most confused pairs stand beside it as a table.

import { el, svg, label, choice } from "./dom.js";
import { count, percent } from "./format.js";
import { sortable } from "./tables.js";
import { hover } from "./tooltip.js";

let pen = null;

function wide(text) {
  if (!pen) {
    pen = document.createElement("canvas").getContext("2d");
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  }
  return pen.measureText(text).width;
}

function shortened(name, room) {
  if (wide(name) <= room) return name;
  const letters = [...name]; // the middle goes: names often begin alike
  for (let kept = letters.length - 1; kept > 1; kept -= 1) {
    const front = Math.floor(kept * 0.4);
    const short = `${letters.slice(0, front).join("")}…${letters.slice(front - kept).join("")}`;
    if (wide(short) <= room) return short;
  }
  return "…";
}

// width: null for cells large enough for the names; else the room that the whole map must fit, without names.
function heatMap({ labels, cells, support }, width) {
  const n = labels.length;
  const size = width !== null ? Math.min(17, Math.max(2, width / n)) : n <= 6 ? 64 : n <= 12 ? 50 : n <= 30 ? 26 : 17;
  const room = Math.min(230, Math.max(110, window.innerWidth * 0.28));
  const longest = Math.min(room, Math.max(36, ...labels.map(wide))) + 14;
  const upright = n <= 12 && Math.max(...labels.map(wide)) <= size - 6;
  const topHeight = upright ? 26 : longest;
  const side = n * size;
  const at = (place) => (place + 0.5) * size;
  const counts = new Map(cells.map(([gold, guess, times]) => [gold * n + guess, times]));
  const share = (gold, times) => (support[gold] ? times / support[gold] : 0);
  const most = worst(cells, share);
  const gap = size > 5 ? 1 : 0;

  const columns = labels.map((name, place) => svg("text", upright
    ? { x: at(place), y: topHeight - 8, "text-anchor": "middle" }
    : { transform: `translate(${at(place)} ${topHeight - 8}) rotate(-90)`, dy: "0.35em" },
  shortened(name, upright ? size : longest - 14)));
  const rows = labels.map((name, place) => svg("text",
    { x: longest - 8, y: at(place), dy: "0.35em", "text-anchor": "end" }, shortened(name, longest - 14)));
  const body = svg("svg", { class: "cells", width: side, height: side, viewBox: `0 0 ${side} ${side}` });
  const row = svg("rect", { class: "beam", width: side, height: size, visibility: "hidden" });
  const column = svg("rect", { class: "beam", width: size, height: side, visibility: "hidden" });
  body.append(svg("rect", { class: "floor", width: side, height: side }), row, column);
  for (const [gold, guess, times] of cells) {
    const part = share(gold, times) / (gold === guess ? 1 : most);
    const strength = 0.2 + 0.8 * Math.sqrt(part); // the root: rare errors must be seen
    body.append(svg("rect", {
      class: gold === guess ? "right" : "wrong", x: guess * size + gap / 2, y: gold * size + gap / 2,
      width: size - gap, height: size - gap, rx: size > 20 ? 3 : 1.5, "fill-opacity": strength.toFixed(3),
    }));
    if (size >= 50) {
      body.append(svg("text", { x: at(guess), y: at(gold), dy: "0.35em", "text-anchor": "middle" }, count(times)));
    }
  }

  const mark = (gold, guess) => {
    const seen = gold === null ? "hidden" : "visible";
    row.setAttribute("visibility", seen);
    column.setAttribute("visibility", seen);
    rows.forEach((text, place) => text.classList.toggle("now", place === gold));
    columns.forEach((text, place) => text.classList.toggle("now", place === guess));
    if (gold === null) return;
    row.setAttribute("y", gold * size);
    column.setAttribute("x", guess * size);
  };
  hover(body, (event) => {
    const box = body.getBoundingClientRect();
    const place = (px, length) => Math.min(n - 1, Math.max(0, Math.floor((px / length) * n)));
    const gold = place(event.clientY - box.top, box.height);
    const guess = place(event.clientX - box.left, box.width);
    const times = counts.get(gold * n + guess) ?? 0;
    mark(gold, guess);
    const said = gold === guess ? [`gold and predicted: ${labels[gold]}`] : [`gold: ${labels[gold]}`, `predicted: ${labels[guess]}`];
    return [...said, `${count(times)} of ${count(support[gold])} (${percent(share(gold, times))})`];
  }, () => mark(null, null));

  if (width !== null) return body;
  const head = svg("svg", { class: "names", width: side, height: topHeight }, columns);
  const left = svg("svg", { class: "names", width: longest, height: side }, rows);
  const corner = el("div", { class: "corner" }, el("span", {}, "gold ↓"), el("span", {}, "predicted →"));
  return el("div", { class: n > 30 ? "grid4 many" : "grid4" }, corner, el("div", { class: "top" }, head), el("div", { class: "left" }, left), body);
}

// The largest share of a row that went to one wrong class.
function worst(cells, share) {
  return cells.reduce((high, [gold, guess, times]) => (gold === guess ? high : Math.max(high, share(gold, times))), 0) || 1;
}

function pairsTable(pairs) {
  const rows = pairs.map(([gold, predicted, times, of]) => ({ gold, predicted, times, share: of ? times / of : 0 }));
  return sortable({
    rows, what: "pairs",
    columns: [
      { name: "gold", value: (r) => r.gold, cell: (r) => label({}, r.gold), left: true, first: "ascending" },
      { name: "predicted", value: (r) => r.predicted, cell: (r) => label({}, r.predicted), left: true, first: "ascending" },
      { name: "times", value: (r) => r.times, cell: (r) => count(r.times) },
      { name: "of gold", value: (r) => r.share, cell: (r) => percent(r.share) },
    ],
  });
}

export function confusionView(confusion) {
  const { labels, of, pairs, support } = confusion;
  const top = worst(confusion.cells, (gold, times) => (support[gold] ? times / support[gold] : 0));
  const place = el("div", {
    class: "matrix", role: "img", tabindex: "0", "aria-label": `confusion matrix of ${labels.length} classes, gold by predicted`,
  });
  const narrow = Math.min(document.documentElement.clientWidth - 36, 1016, Math.max(300, window.innerHeight * 0.8));
  const put = (kind) => place.replaceChildren(heatMap(confusion, kind === "whole" ? narrow : null));
  const first = labels.length > 30 && window.innerWidth < 720 ? "whole" : "names"; // on a phone names leave no room
  put(first);
  return el("div", {},
    el("p", { class: "note" },
      "Rows are gold, columns predicted. Right answers are grey; errors are blue by their share of the row",
      pairs.length > 0 && `, ${percent(top)} at most`, ".",
      labels.length < of && ` ${labels.length} of ${of} classes: those with the most errors.`),
    labels.length > 30 && choice("Size", [["names", "With names"], ["whole", "Whole"]], first, put),
    place,
    el("h3", {}, "Most confused"),
    pairs.length ? pairsTable(pairs) : el("p", { class: "note" }, "Nothing was confused."));
}
