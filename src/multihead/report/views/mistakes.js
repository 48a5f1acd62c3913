// The worst mistakes with their text; marked text shows gold and predicted spans, one under the other.

import { el, user, label, folded } from "./dom.js";
import { count, percent } from "./format.js";

const FIRST = 10;

const key = ([start, end, label]) => `${start} ${end} ${label}`;

function covers([start, end], from, to) {
  return start <= from && to <= end;
}

// Offsets count code points, JavaScript's strings do not: split first.
export function marked(text, gold, predicted) {
  const letters = [...text];
  const [golds, guesses] = [new Set(gold.map(key)), new Set(predicted.map(key))];
  const spans = [
    ...gold.filter((span) => guesses.has(key(span))).map((span) => ["both", span]),
    ...gold.filter((span) => !guesses.has(key(span))).map((span) => ["gold", span]),
    ...predicted.filter((span) => !golds.has(key(span))).map((span) => ["guess", span]),
  ];
  const borders = [...new Set([0, letters.length, ...spans.flatMap(([, [start, end]]) => [start, end])])]
    .filter((place) => place >= 0 && place <= letters.length).sort((a, b) => a - b);
  const out = [];
  borders.slice(0, -1).forEach((from, place) => {
    const to = borders[place + 1];
    const inside = spans.filter(([, span]) => covers(span, from, to));
    const piece = letters.slice(from, to).join("");
    const kinds = [...new Set(inside.map(([kind]) => kind))];
    out.push(kinds.length ? el("span", { class: `mark ${kinds.join(" ")}` }, piece) : piece);
    for (const [kind, span] of inside.filter(([, [, end]]) => end === to)) {
      const said = { both: "right: ", gold: "gold: ", guess: "predicted: " }[kind];
      out.push(el("span", { class: `chip ${kind}` }, el("span", { class: "unseen" }, said), span[2]));
    }
  });
  return out;
}

function item(mistake) {
  const { text, beside, gold, predicted, gold_spans = [], predicted_spans = [], confidence, place } = mistake;
  const spans = gold_spans.length || predicted_spans.length;
  const answer = (gold !== undefined || predicted !== undefined) && el("span", { class: "answer" },
    label({ class: "chip gold" }, gold ?? "none"), el("span", { class: "quiet" }, "taken for"),
    label({ class: "chip guess" }, predicted ?? "none"));
  return el("li", {},
    beside && user("p", { class: "text beside" }, beside),
    user("p", { class: "text" }, text, ...(spans ? marked(text, gold_spans, predicted_spans) : [text])),
    el("p", { class: "under" }, answer,
      confidence !== null && confidence !== undefined && el("span", { class: "quiet" }, `${percent(confidence)} sure`),
      place && user("code", { class: "place" }, place)));
}

export function mistakesView({ worst, wrong, samples }) {
  if (!worst.length) return el("p", { class: "note" }, `No mistake among ${count(samples)} samples.`);
  const items = worst.map((mistake) => [item(mistake), JSON.stringify(Object.values(mistake)).toLowerCase()]);
  const list = el("ol", { class: "mistakes" }, items.map(([node]) => node));
  const [shown, ...more] = folded(list, worst.length, "mistakes", FIRST);
  const found = el("span", { class: "quiet", role: "status" });
  const box = el("input", { type: "search", placeholder: "Filter: a word, a label, a file", "aria-label": "Filter the mistakes", spellcheck: "false" });
  box.addEventListener("input", () => {
    const wanted = JSON.stringify(box.value.trim().toLowerCase()).slice(1, -1);
    const kept = items.filter(([, said]) => said.includes(wanted)).map(([node]) => node);
    list.replaceChildren(...kept);
    list.classList.toggle("filtered", wanted !== "");
    found.textContent = wanted ? `${kept.length} of ${worst.length}` : "";
  });
  const spans = worst.some((mistake) => mistake.gold_spans || mistake.predicted_spans);
  const part = worst.length < wrong ? ` The ${count(worst.length)} worst are here.` : "";
  return el("div", {},
    el("p", { class: "note" }, `${count(wrong)} of ${count(samples)} samples are wrong (${percent(samples ? wrong / samples : 0)}).${part}`),
    el("div", { class: "line tools" }, box, found,
      el("span", { class: "legend" },
        el("span", {}, el("span", { class: "mark gold" }, "gold")),
        el("span", {}, el("span", { class: "mark guess" }, "predicted")),
        spans && el("span", {}, el("span", { class: "mark both" }, "both agree")))),
    shown, more);
}
