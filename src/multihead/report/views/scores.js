// The headline: a few large numbers with their intervals, the other scores small.

import { el, svg } from "./dom.js";
import { scored, percent } from "./format.js";

// Where a value and its interval lie between two ends.
export function range(value, interval, ends, width = 120) {
  const x = (v) => 3 + ((Math.min(ends[1], Math.max(ends[0], v)) - ends[0]) / (ends[1] - ends[0])) * (width - 6);
  const parts = [svg("line", { class: "rail", x1: 3, x2: width - 3, y1: 6, y2: 6 })];
  if (interval && interval.low !== null) {
    const low = x(interval.low);
    parts.push(svg("rect", { class: "reach", x: low, y: 3, width: Math.max(2, x(interval.high) - low), height: 6, rx: 2 }));
  }
  if (value !== null) parts.push(svg("circle", { class: "point", cx: x(value), cy: 6, r: 3 }));
  return svg("svg", { class: "range", viewBox: `0 0 ${width} 12`, width, height: 12, "aria-hidden": "true" }, parts);
}

export function between(interval, unit) {
  return `${scored(interval.low, unit)} – ${scored(interval.high, unit)}`;
}

function large(score) {
  const known = score.interval && score.interval.low !== null;
  const level = known ? percent(score.interval.level, 0) : "";
  return el("div", { class: "figure" },
    el("div", { class: "name" }, score.name),
    el("div", { class: "value" }, scored(score.value, score.unit)),
    el("div", { class: "reached" }, known ? `${between(score.interval, score.unit)} (${level})` : "no interval",
      score.better === "lower" ? " · lower is better" : ""),
    score.signature && el("div", { class: "signature" }, score.signature));
}

function small(score) {
  const known = score.interval && score.interval.low !== null;
  return el("tr", {},
    el("th", { scope: "row" }, score.name),
    el("td", {}, scored(score.value, score.unit)),
    el("td", { class: "quiet" }, known ? between(score.interval, score.unit) : ""),
    el("td", { class: "signature" }, score.signature || ""));
}

export function scoresView(scores) {
  const rest = scores.slice(4);
  return el("div", {},
    el("div", { class: "figures" }, scores.slice(0, 4).map(large)),
    rest.length > 0 && el("details", {},
      el("summary", {}, rest.length === 1 ? "One more score" : `${rest.length} more scores`),
      el("table", { class: "plain" }, el("tbody", {}, rest.map(small)))));
}
