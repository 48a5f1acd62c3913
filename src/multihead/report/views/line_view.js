// Words on both sides, a line from each word to what it looks at: as thick and as dark as the weight.

import { el, svg, user } from "./dom.js";
import { percent } from "./format.js";
import { rowOf } from "./weights.js";

const STEP = 26;
const FAINT = 0.04; // weaker lines are left out, unless their word is pointed at

export function linesView(map, queries, keys, width) {
  const side = Math.min(190, Math.floor(width * 0.3));
  const wide = Math.min(width - 2 * side, 420);
  const height = Math.max(queries.length, keys.length) * STEP;
  const at = (place) => (place + 0.5) * STEP;
  const rows = queries.map((_, word) => rowOf(map, word));
  const drawn = svg("svg", { class: "lines", width: wide, height, viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" });
  const shares = keys.map(() => el("span", { class: "share" }));
  const left = queries.map((word, place) => user("button", { type: "button", class: "word" }, word));
  const right = keys.map((word, place) => el("div", { class: "word" }, user("span", {}, word), shares[place]));
  let held = null;

  function draw(word) {
    const lines = [];
    rows.forEach((row, query) => {
      if (word !== null && query !== word) return;
      for (const [key, weight] of row) {
        if (weight < (word === null ? FAINT : 0.005)) break;
        lines.push(svg("path", {
          d: `M0 ${at(query)}C${wide / 2} ${at(query)} ${wide / 2} ${at(key)} ${wide} ${at(key)}`,
          "stroke-width": (0.6 + 4 * weight).toFixed(2), "stroke-opacity": Math.min(1, 0.12 + weight).toFixed(3),
        }));
      }
    });
    drawn.replaceChildren(...lines);
    const said = new Map(word === null ? [] : rows[word]);
    shares.forEach((node, key) => { node.textContent = (said.get(key) ?? 0) >= 0.005 ? percent(said.get(key), 0) : ""; });
    left.forEach((node, query) => node.classList.toggle("now", query === word));
  }
  left.forEach((node, word) => {
    node.addEventListener("pointerenter", () => draw(word));
    node.addEventListener("focus", () => draw(word));
    node.addEventListener("click", () => { held = held === word ? null : word; draw(held); });
  });
  const box = el("div", { class: "linked" },
    el("div", { class: "side from" }, left), drawn, el("div", { class: "side" }, right));
  box.addEventListener("pointerleave", () => draw(held));
  box.style.gridTemplateColumns = `${side}px ${wide}px ${side}px`;
  draw(null);
  return box;
}
