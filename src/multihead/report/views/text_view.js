// The text itself: point at a word, and the words it looks at light up.

import { el, user } from "./dom.js";
import { percent } from "./format.js";
import { rowOf } from "./weights.js";
import { say } from "./say.js";

const HAN = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{P}]/u;
const GLUED = /^##/; // WordPiece: the word goes on
const HINT = "Point at a word to see what it looks at; click to hold it.";
const PAGE = 4000; // words that are laid out at once

export function wordsView(map, queries, keys, same) {
  const said = el("p", { class: "note told" }, say(HINT));
  let held = null;
  let lit = [];
  let wanted = null;

  function flow(words, caption, asks) {
    const nodes = new Map();
    const place = el("div", { class: "flow" });
    let shown = 0;
    const more = el("button", { type: "button", class: "more" });
    function lay(upto) {
      const parts = [];
      for (; shown < Math.min(words.length, upto); shown += 1) {
        const word = words[shown];
        const inside = asks ? (map.exact && !map.exact.has(shown) && !map.fetchRow ? " thin" : " asks") : "";
        const node = el("span", { class: `token${inside}`, "data-at": shown, tabindex: asks && words.length < 400 ? "0" : null }, word);
        nodes.set(shown, node);
        parts.push(...(shown && !HAN.test(word) && !GLUED.test(word) ? [" ", node] : [node]));
      }
      place.append(...parts);
      more.hidden = shown >= words.length;
      more.textContent = say("Show the next {} of {} words", Math.min(PAGE, words.length - shown).toLocaleString("en-US"), words.length.toLocaleString("en-US"));
    }
    more.addEventListener("click", () => lay(shown + PAGE));
    lay(PAGE);
    return { box: el("div", {}, caption && el("h3", {}, caption), place, more), nodes };
  }

  const from = flow(queries, same ? "" : say("Target: what looks"), true);
  const to = same ? from : flow(keys, say("Source: what is looked at"), false);

  function show(word) {
    wanted = word;
    for (const node of lit) { node.style.backgroundColor = ""; node.classList.remove("now"); }
    lit = [];
    if (word === null) { said.textContent = say(HINT); return; }
    const node = from.nodes.get(word);
    node.classList.add("now");
    lit.push(node);
    const row = rowOf(map, word);
    if (!row && map.fetchRow) { // a long text: the row is asked for
      said.textContent = say("Reading the row of “{}” …", queries[word]);
      wanted = word;
      map.fetchRow(word).then(() => { if (wanted === word) show(word); }, (error) => { if (wanted === word) said.textContent = error.message; });
      return;
    }
    if (!row) {
      said.textContent = `The row of “${queries[word]}” is not in this page, as those of all grey words; heads show … --rows ${word}:${word + 20} puts it there.`;
      return;
    }
    for (const [key, weight] of row) {
      if (weight < 0.004) break;
      if (!to.nodes.has(key)) continue;
      const seen = to.nodes.get(key);
      seen.style.backgroundColor = `color-mix(in srgb, var(--heat) ${Math.round(100 * Math.sqrt(weight))}%, transparent)`;
      lit.push(seen);
    }
    const best = row.slice(0, 5).filter(([, weight]) => weight >= 0.005);
    said.replaceChildren(user("strong", {}, queries[word]), say(" looks at "),
      ...best.flatMap(([key, weight], i) => [i ? ", " : "", user("span", {}, keys[key]), ` ${percent(weight, 0)}`]));
  }
  const asked = (event) => {
    const node = event.target.closest?.(".token[data-at]");
    return node && from.box.contains(node) ? Number(node.dataset.at) : null;
  };
  from.box.addEventListener("pointerover", (event) => { const word = asked(event); if (word !== null) show(word); });
  from.box.addEventListener("focusin", (event) => { const word = asked(event); if (word !== null) show(word); });
  from.box.addEventListener("pointerleave", () => show(held));
  from.box.addEventListener("click", (event) => {
    const word = asked(event);
    if (word !== null) { held = held === word ? null : word; show(held ?? word); }
  });
  return el("div", {}, said, from.box, !same && to.box);
}
