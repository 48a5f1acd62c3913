// Words in a row above and a row below, a line from each word to what it looks at: for Chinese and Japanese, whose words
// are short and are read along a line.

import { svg, user, el } from "./dom.js";
import { percent } from "./format.js";
import { rowOf } from "./weights.js";

const FAINT = 0.04; // weaker lines are left out, unless their word is pointed at
const GAP = 12;
const HEIGHT = 200;
const isWide = (sign) => sign.codePointAt(0) > 0x2e80;

// Where words stand in a row: the middle of each, and where the row ends.
export function places(words) {
  let end = GAP;
  const middles = words.map((word) => {
    const wide = [...word].reduce((sum, sign) => sum + (isWide(sign) ? 17 : 8.6), 0);
    const middle = end + wide / 2;
    end += wide + GAP;
    return middle;
  });
  return { middles, end };
}

export function acrossView(map, queries, keys) {
  const [from, to] = [places(queries), places(keys)];
  const rows = queries.map((_, word) => rowOf(map, word));
  const wide = Math.max(from.end, to.end);
  const lines = svg("g", { class: "lines" });
  const shares = to.middles.map((x) => svg("text", { x, y: HEIGHT - 2, "text-anchor": "middle", class: "share" }));
  let held = null;

  function draw(word) {
    const drawn = [];
    rows.forEach((row, query) => {
      if (word !== null && query !== word) return;
      for (const [key, weight] of row) {
        if (weight < (word === null ? FAINT : 0.005)) break;
        const [x, y] = [from.middles[query], to.middles[key]];
        drawn.push(svg("path", {
          d: `M${x} 30C${x} 90 ${y} 90 ${y} 152`,
          "stroke-width": (0.6 + 4 * weight).toFixed(2), "stroke-opacity": Math.min(1, 0.12 + weight).toFixed(3),
        }));
      }
    });
    lines.replaceChildren(...drawn);
    const row = new Map(word === null ? [] : rows[word]);
    shares.forEach((node, key) => { node.textContent = (row.get(key) ?? 0) >= 0.005 ? percent(row.get(key), 0) : ""; });
    above.forEach((node, query) => node.classList.toggle("now", query === word));
  }
  const above = queries.map((word, place) => {
    const node = svg("text", { x: from.middles[place], y: 20, "text-anchor": "middle", class: "across-word", tabindex: "0", role: "button" }, word);
    node.addEventListener("pointerenter", () => draw(place));
    node.addEventListener("focus", () => draw(place));
    node.addEventListener("click", () => { held = held === place ? null : place; draw(held); });
    return node;
  });
  const below = keys.map((word, place) => svg("text", { x: to.middles[place], y: 172, "text-anchor": "middle" }, word));
  const drawing = svg("svg", { class: "across", width: wide, height: HEIGHT, viewBox: `0 0 ${wide} ${HEIGHT}` }, lines, above, below, shares);
  drawing.addEventListener("pointerleave", () => draw(held));
  draw(null);
  return user("div", { class: "across-box" }, queries.join(""), el("div", { class: "across-roll" }, drawing));
}
