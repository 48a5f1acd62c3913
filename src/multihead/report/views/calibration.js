// Is a confidence worth what it says? Accuracy over confidence, with Wilson's interval of each bin.

import { el, svg, fit } from "./dom.js";
import { percent, count } from "./format.js";
import { frame } from "./plot.js";
import { hover } from "./tooltip.js";

const TICKS = [0, 0.2, 0.4, 0.6, 0.8, 1];

export function wilson(share, n, z = 1.96) {
  const middle = (share + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const reach = (z * Math.sqrt((share * (1 - share)) / n + (z * z) / (4 * n * n))) / (1 + (z * z) / n);
  return [Math.max(0, middle - reach), Math.min(1, middle + reach)];
}

function lines(bin) {
  return [
    `confidence ${percent(bin.low, 0)} to ${percent(bin.high, 0)}`,
    `${count(bin.count)} answers`,
    `mean confidence ${percent(bin.confidence)}`,
    `right ${percent(bin.accuracy)}`,
  ];
}

function reliability(bins, width) {
  const height = Math.min(340, Math.max(240, width * 0.8));
  const shown = (value) => percent(value, 0);
  const { root, x, y, inner } = frame({
    width, height, xs: [0, 1], ys: [0, 1], xTitle: "confidence", xTicks: TICKS, yTicks: TICKS, xFormat: shown, yFormat: shown,
  });
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", "share of right answers over confidence");
  inner.append(svg("line", { class: "ideal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  const most = Math.max(...bins.map((bin) => bin.count));
  for (const bin of bins) {
    const [low, high] = wilson(bin.accuracy, bin.count);
    const mark = svg("g", { class: "bin" },
      svg("line", { class: "whisker", x1: x(bin.confidence), x2: x(bin.confidence), y1: y(low), y2: y(high) }),
      svg("circle", { class: "dot line-0", cx: x(bin.confidence), cy: y(bin.accuracy), r: 3 + 5 * Math.sqrt(bin.count / most) }),
      svg("rect", { class: "catch", x: x(bin.low), y: y(1), width: x(bin.high) - x(bin.low), height: y(0) - y(1) }));
    hover(mark, () => lines(bin));
    inner.append(mark);
  }
  return root;
}

function histogram(bins, width) {
  const most = Math.max(...bins.map((bin) => bin.count));
  const { root, x, y, inner } = frame({
    width, height: 150, xs: [0, 1], ys: [0, most * 1.05], xTitle: "answers by confidence", xTicks: TICKS,
    xFormat: (value) => percent(value, 0),
  });
  for (const bin of bins) {
    const bar = svg("rect", {
      class: "bar", x: x(bin.low) + 1, width: Math.max(1, x(bin.high) - x(bin.low) - 2),
      y: y(bin.count), height: y(0) - y(bin.count),
    });
    hover(bar, () => lines(bin));
    inner.append(bar);
  }
  return root;
}

function verdict(bins) {
  const all = bins.reduce((sum, bin) => sum + bin.count, 0);
  const mean = (name) => bins.reduce((sum, bin) => sum + bin.count * bin[name], 0) / all;
  const [said, right] = [mean("confidence"), mean("accuracy")];
  const [low, high] = wilson(right, all);
  const kind = said > high ? "too sure of itself" : said < low ? "less sure than it could be" : "about as sure as it should be";
  return `Over ${count(all)} answers: ${percent(said)} confident on average, ${percent(right)} right: ${kind}.`;
}

export function calibrationView(every) {
  const bins = every.filter((bin) => bin.count > 0);
  if (!bins.length) return null;
  return el("div", {},
    el("p", { class: "note" }, verdict(bins), " On the dashed line, confidence is what it says; whiskers are 95 % intervals."),
    el("div", { class: "panels" },
      el("figure", {}, el("figcaption", {}, el("h3", {}, "Share of right answers")),
        fit(el("div", { class: "drawn" }), (width) => reliability(bins, width))),
      el("figure", {}, el("figcaption", {}, el("h3", {}, "Answers")),
        fit(el("div", { class: "drawn" }), (width) => histogram(bins, width)))));
}
