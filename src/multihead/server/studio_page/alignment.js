// A translation and its source: point at a word that was written, and the words it was made of light up.

import { el, user } from "../views/dom.js";
import { percent } from "../views/format.js";
import { say } from "../views/say.js";
import { opened, rowOf } from "../views/weights.js";

const HAN = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{P}]/u;
const SPECIAL = /^(\[[A-Z]+\]|<[^>]*>)$/;

function flow(words, first) {
  const nodes = words.map((word) => el("span", { class: "token" }, word.replace(/^##/, "")));
  const parts = nodes.flatMap((node, place) => (place > first && !HAN.test(words[place]) && !/^##/.test(words[place]) ? [" ", node] : [node]));
  words.forEach((word, place) => { if (SPECIAL.test(word)) nodes[place].classList.add("quiet"); });
  return { nodes, line: user("p", { class: "flow" }, words.join(""), ...parts) };
}

// Row t tells what was looked at when token t + 1 was written.
export function makeAlignment(view, bits) {
  const map = opened(view.alignment, bits);
  const [source, target] = [flow(view.keys, 0), flow(view.queries.slice(1), 0)];
  const told = el("p", { class: "fine", "aria-live": "polite" }, say("Point at a word of the translation to see where it comes from."));
  function show(place) {
    const row = place === null ? [] : rowOf(map, place);
    const weights = new Map(row);
    source.nodes.forEach((node, key) => {
      const weight = weights.get(key) ?? 0;
      node.style.backgroundColor = weight < 0.02 ? "" : `color-mix(in srgb, var(--heat) ${Math.round(100 * Math.sqrt(weight))}%, transparent)`;
    });
    target.nodes.forEach((node, at) => node.classList.toggle("now", at === place));
    if (row.length) told.textContent = row.slice(0, 3).map(([key, weight]) => `${view.keys[key]} ${percent(weight, 0)}`).join(", ");
  }
  target.nodes.forEach((node, place) => {
    node.tabIndex = 0;
    node.classList.add("asks");
    for (const kind of ["pointerenter", "focus", "click"]) node.addEventListener(kind, () => show(place));
  });
  return el("div", { class: "alignment" }, el("h3", {}, say("Alignment, by cross-attention")), target.line, source.line, told);
}
