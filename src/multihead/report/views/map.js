// One head as a map: a row is a word that looks, a column a word that is looked at.

import { el, svg } from "./dom.js";
import { percent } from "./format.js";
import { hover } from "./tooltip.js";
import { pixels } from "./heatmap.js";
import { say } from "./say.js";

const LABELLED = 90; // words whose names fit beside a map

export function mapOf(map, view, width, bits) {
  const [rows, columns] = map.shape;
  const exact = !map.exact;
  const labels = exact && Math.max(view.queries.length, view.keys.length) <= LABELLED;
  const longest = (words) => Math.min(14, Math.max(...words.map((word) => [...word].reduce((n, sign) => n + (sign.charCodeAt(0) > 0x2e80 ? 2 : 1), 0))));
  const left = labels ? 16 + 7.4 * longest(view.queries) : 0;
  const top = labels ? 16 + 7.4 * longest(view.keys) : 0;
  const cell = Math.max(labels ? 13 : 1.5, Math.min(34, (Math.min(width, labels ? 920 : 720) - left) / columns));
  const [wide, high] = [Math.round(cell * columns), Math.round(Math.min(cell * rows, labels ? Infinity : 720))];
  const canvas = pixels(map, wide, high, { class: "map" });
  const clip = (word) => ([...word].length > 14 ? `${[...word].slice(0, 13).join("")}…` : word);
  const box = el("div", { class: "mapped" }, canvas);
  box.style.paddingLeft = `${left}px`;
  box.style.paddingTop = `${top}px`;
  if (labels) {
    box.append(svg("svg", { class: "names", width: left + wide, height: top + high, "aria-hidden": "true" },
      view.queries.map((word, i) => svg("text", { x: left - 8, y: top + (i + 0.5) * cell, dy: "0.35em", "text-anchor": "end" }, clip(word))),
      view.keys.map((word, i) => svg("text", { transform: `translate(${left + (i + 0.5) * cell},${top - 8}) rotate(-90)`, dy: "0.35em" }, clip(word)))));
  }
  hover(canvas, (event) => {
    const around = canvas.getBoundingClientRect();
    const r = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - around.top) / around.height) * rows)));
    const c = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - around.left) / around.width) * columns)));
    const share = percent(map.data[r * columns + c], bits === 16 ? 1 : 0); // 8 bits know no tenths
    if (exact) return [`${view.queries[r]} → ${view.keys[c]}`, share];
    const span = (words, band, bands) => {
      const [from, to] = [Math.ceil((band * words.length) / bands), Math.ceil(((band + 1) * words.length) / bands) - 1];
      return say("words {} ({} …)", `${from}–${to}`, words[from]);
    };
    return [`${span(view.queries, r, rows)} → ${span(view.keys, c, columns)}`, share];
  });
  return box;
}
