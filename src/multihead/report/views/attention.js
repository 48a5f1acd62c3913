// The page of `heads show`: all heads of a model on one text, one of them large.

import { choice, el, fit, user } from "./dom.js";
import { gridOf } from "./grid.js";
import { linesView } from "./line_view.js";
import { mapOf } from "./map.js";
import { opened } from "./weights.js";
import { wordsView } from "./text_view.js";

const facts = JSON.parse(document.getElementById("facts").textContent);
const FEW = 48; // words that lines are drawn between

for (const view of facts.views) view.keys = view.keys ?? view.queries;

const state = { view: facts.views[0], map: null, mode: null };
state.view = facts.views.find((view) => view.maps.some((map) => map.address === facts.head)) ?? facts.views[0];
// Shown first: the head that was asked for, or one that does something one can name.
const telling = (map) => map.name && !/mixed|broad|sink|partly/.test(map.name);
state.map = state.view.maps.find((map) => map.address === facts.head) ?? state.view.maps.find(telling) ?? state.view.maps[0];

const grid = el("div", { class: "wide" });
const large = el("div", { class: "wide drawn" });
const modes = el("div", { class: "modes" });
const heading = el("h2", {});
const about = el("p", { class: "note" });

function drawGrid(width) {
  return gridOf(state.view, width, { bits: facts.bits, current: state.map.address, chosen: (map) => pick(map) });
}

function drawLarge(width) {
  const { view, map, mode } = state;
  const same = view.keys === view.queries;
  if (mode === "lines") return linesView(map, view.queries, view.keys, width);
  if (mode === "text") return wordsView(map, view.queries, view.keys, same);
  return mapOf(map, view, width, facts.bits);
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
