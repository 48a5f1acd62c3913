// How long inputs are, where the window ends, and what padding and windows cost.

import { el, svg, fit } from "./dom.js";
import { percent, count } from "./format.js";
import { frame } from "./plot.js";
import { hover } from "./tooltip.js";

function histogram(lengths, width) {
  const { edges, counts, limit, unit } = lengths;
  const most = Math.max(1, ...counts);
  const { root, x, y, inner, box } = frame({
    width, height: 220, xs: [edges[0], edges[edges.length - 1]], ys: [0, most * 1.05], xTitle: unit,
  });
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", `inputs by length in ${unit}`);
  counts.forEach((inputs, place) => {
    const [left, right] = [x(edges[place]), x(edges[place + 1])];
    const bar = svg("rect", {
      class: "bar", x: left + 0.5, width: Math.max(1, right - left - 1), y: y(inputs), height: y(0) - y(inputs),
    });
    const column = svg("g", {}, bar, svg("rect", { class: "catch", x: left, width: right - left, y: box.top, height: box.h }));
    const [first, last] = [edges[place], edges[place + 1] - 1];
    hover(column, () => [`${first < last ? `${count(first)} to ` : ""}${count(last)} ${unit}`, `${count(inputs)} inputs`]);
    inner.append(column);
  });
  if (limit && limit <= edges[edges.length - 1]) {
    const flip = x(limit) > box.left + box.w * 0.7;
    inner.append(
      svg("line", { class: "best", x1: x(limit), x2: x(limit), y1: box.top, y2: box.top + box.h }),
      svg("text", { class: "tick", x: x(limit) + (flip ? 4 : -4), y: box.top - 8, "text-anchor": flip ? "end" : "start" },
        `window: ${count(limit)}`));
  }
  return root;
}

export function lengthsView(lengths) {
  const fact = (name, value, why, loud) => el("div", { class: loud ? "fact loud" : "fact" },
    el("dt", {}, name), el("dd", {}, value, el("span", { class: "quiet" }, why)));
  const known = (value) => value !== null && value !== undefined;
  return el("div", { class: "aside" },
    el("figure", {},
      el("figcaption", {}, el("h3", {}, lengths.of ? `Inputs by length: ${lengths.of}` : "Inputs by length")),
      fit(el("div", { class: "drawn" }), (width) => histogram(lengths, width))),
    el("dl", { class: "facts" },
      fact("Truncated", count(lengths.truncated), lengths.truncated ? "inputs lost text" : "nothing was cut off", lengths.truncated > 0),
      known(lengths.windowed) && fact("Cut into windows", percent(lengths.windowed), "of the inputs"),
      known(lengths.padding) && fact("Padding", percent(lengths.padding), "of the batches’ places held no token")));
}
