// The page of `heads show`: all heads of a model on one text, one of them large.

import { choice, el, fit, svg, user } from "./dom.js";
import { percent } from "./format.js";
import { hover } from "./tooltip.js";
import { linesView } from "./line_view.js";
import { opened } from "./weights.js";
import { pixels } from "./heatmap.js";
import { wordsView } from "./text_view.js";

const facts = JSON.parse(document.getElementById("facts").textContent);
const FEW = 48; // words that lines are drawn between
const LABELLED = 90; // words whose names fit beside a map

for (const view of facts.views) view.keys = view.keys ?? view.queries;

const state = { view: facts.views[0], map: null, mode: null };
state.view = facts.views.find((view) => view.maps.some((map) => map.address === facts.head)) ?? facts.views[0];
// Shown first: the head that was asked for, or one that does something one can name.
const telling = (map) => map.name && !/mixed|broad|sink|partly/.test(map.name);
state.map = state.view.maps.find((map) => map.address === facts.head) ?? state.view.maps.find(telling) ?? state.view.maps[0];

function gridOf(view, width, chosen) {
  const layers = new Map();
  for (const map of view.maps) {
    const layer = Number(map.address.split(".")[1]);
    if (!layers.has(layer)) layers.set(layer, []);
    layers.get(layer).push(map);
  }
  const highest = Math.max(...view.maps.map((map) => Number(map.address.split(".")[3]))) + 1;
  const phone = width < 500;
  const left = phone ? 24 : 62;
  const size = Math.max(18, Math.min(96, Math.floor((width - left - 6) / highest) - (phone ? 3 : 6)));
  const grid = el("div", { class: phone ? "heads narrow" : "heads", role: "group", "aria-label": "Heads by layer" });
  grid.style.gridTemplateColumns = `${left - 6}px repeat(${highest}, ${size}px)`;
  grid.append(el("span", {}), ...Array.from({ length: highest }, (_, head) => el("span", { class: "tick" }, head)));
  for (const [layer, maps] of layers) {
    grid.append(el("span", { class: "tick" }, phone ? layer : `layer ${layer}`));
    for (let head = 0; head < highest; head += 1) {
      const map = maps.find((one) => Number(one.address.split(".")[3]) === head);
      if (!map) {
        const gone = el("span", { class: "gone", title: "cut out" });
        gone.style.height = `${size}px`;
        grid.append(gone);
        continue;
      }
      opened(map, facts.bits);
      const button = el("button", {
        type: "button", class: "thumb", "aria-pressed": String(map === state.map), "aria-label": `${map.address} ${map.name}`, onclick: () => chosen(map),
      }, pixels(map, size - 2, size - 2));
      hover(button, () => [map.address, map.name].filter(Boolean));
      grid.append(button);
    }
  }
  return grid;
}

function mapOf(map, view, width) {
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
    const share = percent(map.data[r * columns + c], facts.bits === 16 ? 1 : 0); // 8 bits know no tenths
    if (exact) return [`${view.queries[r]} → ${view.keys[c]}`, share];
    const span = (words, band, bands) => {
      const [from, to] = [Math.ceil((band * words.length) / bands), Math.ceil(((band + 1) * words.length) / bands) - 1];
      return `words ${from}–${to} (${words[from]} …)`;
    };
    return [`${span(view.queries, r, rows)} → ${span(view.keys, c, columns)}`, share];
  });
  return box;
}

const grid = el("div", { class: "wide" });
const large = el("div", { class: "wide drawn" });
const modes = el("div", { class: "modes" });
const heading = el("h2", {});
const about = el("p", { class: "note" });

function drawGrid(width) {
  return gridOf(state.view, width, (map) => pick(map));
}

function drawLarge(width) {
  const { view, map, mode } = state;
  const same = view.keys === view.queries;
  if (mode === "lines") return linesView(map, view.queries, view.keys, width);
  if (mode === "text") return wordsView(map, view.queries, view.keys, same);
  return mapOf(map, view, width);
}

function pick(map) {
  state.map = opened(map, facts.bits);
  heading.textContent = map.address === "rollout" ? "Rollout" : map.address;
  about.textContent = map.address === "rollout"
    ? "Where each word’s state after the last layer comes from: mean attention and residual, layer upon layer (Abnar & Zuidema 2020)."
    : [map.name, state.view.coarse ? `of ${view_words(state.view)} words; the map is coarse, rows are exact` : ""].filter(Boolean).join(" · ");
  const buttons = [...grid.querySelectorAll(".thumb")];
  buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.getAttribute("aria-label").split(" ")[0] === map.address)));
  if (large.clientWidth) large.replaceChildren(drawLarge(large.clientWidth));
}

const view_words = (view) => view.queries.length.toLocaleString("en-US");

function use(view, map) {
  state.view = view;
  const few = Math.max(view.queries.length, view.keys.length) <= FEW;
  const offered = [...(few ? [["lines", "Lines"]] : []), ["text", "Text"], ["map", "Map"]];
  if (!state.mode || !offered.some(([mode]) => mode === state.mode)) state.mode = few ? "lines" : view.coarse ? "map" : "text";
  modes.replaceChildren(choice("How to show it", offered, state.mode, (mode) => { state.mode = mode; pick(state.map); }));
  if (view.rollout) modes.append(el("button", { type: "button", class: "more plain", onclick: () => pick(view.rollout) }, "Rollout of all heads"));
  if (grid.clientWidth) grid.replaceChildren(drawGrid(grid.clientWidth));
  pick(map ?? view.maps.find(telling) ?? view.maps[0]);
}

const kinds = { self: "self-attention", cross: "cross-attention" };
const head = el("header", { class: "head" },
  el("p", { class: "kind" }, ["attention", facts.model, facts.note].filter(Boolean).join(" · ")),
  user("h1", { class: "sentence" }, facts.title));
const total = facts.views.reduce((sum, view) => sum + view.maps.length, 0);

const all = el("section", { id: "all" }, el("h2", {}, `All ${total} heads`),
  el("p", { class: "note" }, "A row of each small map is a word that looks, a column a word that is looked at; strong colour is much. Click one to see it large."),
  facts.views.length > 1 && choice("Which attention", facts.views.map((view) => [view, `${view.stack}, ${kinds[view.kind] ?? view.kind}`]), state.view, (view) => use(view)),
  grid);

document.getElementById("report").append(...(total > 1 ? [head, all] : [head]),
  el("section", { id: "one" }, heading, about, modes, large));
fit(grid, drawGrid);
fit(large, drawLarge);
use(state.view, state.map);
