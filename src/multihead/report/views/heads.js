// What the heads do: a small map per statistic, layers by heads; the chosen one large, with numbers.

import { el, svg, choice, fit } from "./dom.js";
import { fixed, percent, short } from "./format.js";
import { hover } from "./tooltip.js";

const SAID = {
  entropy: "How widely a head spreads its attention, in nats: 0 is one token.",
  self: "Share of the attention on the token itself.",
  previous: "Share on the token before.",
  next: "Share on the token after.",
  first: "Share on the first token.",
  separator: "Share on separators.",
  spread: "Entropy as a share of the largest that is possible: 1 is even.",
  distance: "How many tokens away a head looks on average.",
  punctuation: "Share on punctuation.",
  same: "Share on the same word elsewhere, over the words that stand twice.",
  after: "Share on what followed the same word elsewhere, over the words that stand twice.",
  offset: "How many tokens ahead (or, with a minus, behind) a head looks on average; colour by size.",
};

const isShare = (name) => !["entropy", "distance", "offset", "spread"].includes(name);
const told = (name, value) => (isShare(name) ? percent(value) : short(value));

function most(matrix) {
  return matrix.flat().reduce((high, value) => Math.max(high, Math.abs(value ?? 0)), 0);
}

function cellsOf(matrix, size, numbers, format) {
  const top = most(matrix) || 1;
  const wide = Math.max(0, ...matrix.map((row) => row.length)) * size.width;
  const root = svg("svg", { class: size.width < 32 ? "cells tight" : "cells", width: wide, height: matrix.length * size.height, viewBox: `0 0 ${wide} ${matrix.length * size.height}` });
  matrix.forEach((row, layer) => row.forEach((value, head) => {
    const place = { x: head * size.width + 0.5, y: layer * size.height + 0.5, width: size.width - 1, height: size.height - 1, rx: numbers ? 3 : 1 };
    if (value === null) {
      root.append(svg("rect", { class: "gone", ...place }));
      return;
    }
    root.append(svg("rect", { class: "floor", ...place }));
    root.append(svg("rect", { class: "wrong", ...place, "fill-opacity": Math.abs(value / top).toFixed(3) }));
    if (numbers) {
      root.append(svg("text", {
        x: (head + 0.5) * size.width, y: (layer + 0.5) * size.height, dy: "0.35em", "text-anchor": "middle",
      }, format(value)));
    }
  }));
  return root;
}

function large(heads, name, room) {
  const matrix = heads.statistics[name];
  const columns = Math.max(0, ...matrix.map((row) => row.length));
  const left = 62;
  const top = 24;
  const cell = Math.max(14, Math.min(46, Math.floor((room - left) / columns)));
  const size = { width: cell, height: Math.min(32, Math.max(18, cell)) };
  const numbers = cell >= 24;
  const cells = cellsOf(matrix, size, numbers, (value) => (isShare(name) ? String(Math.round(value * 100)) : fixed(value, 1)));
  const [wide, high] = [left + columns * size.width, top + matrix.length * size.height];
  cells.setAttribute("x", left);
  cells.setAttribute("y", top);
  const every = numbers ? 1 : 4;
  const root = svg("svg", { class: "headmap", width: wide, height: high, role: "img", "aria-label": `${name} by layer and head` },
    matrix.map((_, layer) => svg("text", { class: "tick", x: left - 8, y: top + (layer + 0.5) * size.height, dy: "0.35em", "text-anchor": "end" }, `layer ${layer}`)),
    Array.from({ length: columns }, (_, head) => head % every === 0
      && svg("text", { class: "tick", x: left + (head + 0.5) * size.width, y: top - 8, "text-anchor": "middle" }, head)),
    cells);
  hover(cells, (event) => {
    const box = cells.getBoundingClientRect();
    const layer = Math.min(matrix.length - 1, Math.max(0, Math.floor((event.clientY - box.top) / size.height)));
    const head = Math.min(columns - 1, Math.max(0, Math.floor((event.clientX - box.left) / size.width)));
    const address = `${heads.stack}.${layer}.${heads.kind}.${head}`;
    if ((matrix[layer][head] ?? null) === null) return [address, "cut out"];
    const does = Object.entries(heads.names ?? {}).find(([, addresses]) => addresses.includes(address));
    return [does ? `${address}: ${does[0]}` : address, ...Object.entries(heads.statistics).map(([other, values]) => `${other} ${told(other, values[layer][head])}`)];
  });
  return root;
}

function one(heads) {
  const names = Object.keys(heads.statistics);
  let chosen = names[0];
  const place = el("div", { class: "wide drawn" });
  const said = el("p", { class: "note" });
  const buttons = names.map((name) => el("button", { type: "button", class: "small", onclick: () => choose(name) },
    cellsOf(heads.statistics[name], { width: 9, height: 9 }, false),
    el("span", {}, name), el("span", { class: "quiet" }, `up to ${told(name, most(heads.statistics[name]))}`)));
  function choose(name) {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(names[at] === name)));
    chosen = name;
    if (place.clientWidth) place.replaceChildren(large(heads, chosen, place.clientWidth));
    said.textContent = `${SAID[name] ?? ""} ${isShare(name) ? "Numbers are percent; colour" : "Colour"} runs from 0 to ${told(name, most(heads.statistics[name]))}.`.trim();
  }
  choose(chosen);
  fit(place, (width) => large(heads, chosen, width));
  return el("div", {},
    el("div", { class: "smalls", role: "group", "aria-label": "Statistic" }, buttons), said, place, named(heads));
}

// What the heads do in words; sorted so that those without a name of their own come last.
function named(heads) {
  const plain = (name) => Number(/^(mixed|broad|near)$/.test(name)) + Number(/^partly/.test(name)) / 2;
  const names = Object.entries(heads.names ?? {}).sort((a, b) => plain(a[0]) - plain(b[0]) || b[1].length - a[1].length);
  const bare = (address) => address.split(".").filter((_, place) => place % 2).join(".");
  if (!names.length) return null;
  return el("div", {},
    el("h3", { class: "spaced" }, "Named by rules"),
    el("p", { class: "note" }, "By the place that gets at least half of a head’s attention (from three tenths on, “partly”); layer.head."),
    el("dl", { class: "origin" }, names.flatMap(([name, addresses]) => [
      el("dt", {}, name), el("dd", {}, addresses.map(bare).join(", "))])),
    heads.alike.length > 0 && el("details", {}, el("summary", {}, "Heads that look at the same"),
      el("ul", {}, heads.alike.map((cluster) => el("li", {}, cluster.map(bare).join(", "))))));
}

export function headsView(every) {
  const place = el("div", {});
  const put = (heads) => place.replaceChildren(one(heads));
  put(every[0]);
  const same = every.every((heads) => heads.note === every[0].note); // of several tasks, each has its own
  const names = every.map((heads) => [heads, `${same ? "" : `${heads.note}: `}${heads.stack}, ${heads.kind}`]);
  return el("div", {},
    same && every[0].note && el("p", { class: "note" }, every[0].note),
    every.length > 1 && choice("Which attention", names, every[0], put), place);
}
