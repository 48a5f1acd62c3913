// Axes with round numbers, for every picture that has an x and a y.

import { svg } from "./dom.js";
import { short } from "./format.js";

// About `want` round numbers from low to high.
export function ticks(low, high, want) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const rough = span / Math.max(1, want);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.75);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    found.push(Number((n * step).toPrecision(12)));
  }
  return found;
}

// A little air above and below; a flat line gets room as well.
export function roomy(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return [0, 1];
  const air = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - air < 0 ? 0 : low - air, high + air];
}

// {root, x, y, inner, box}: the drawing, the scales, and where to draw.
export function frame({ width, height, xs, ys, xTitle = "", yFormat = short, xFormat = short, yTicks, xTicks }) {
  const box = { left: 52, right: 26, top: 26, bottom: xTitle ? 42 : 26 };
  const w = width - box.left - box.right;
  const h = height - box.top - box.bottom;
  const x = (value) => box.left + ((value - xs[0]) / (xs[1] - xs[0] || 1)) * w;
  const y = (value) => box.top + h - ((value - ys[0]) / (ys[1] - ys[0] || 1)) * h;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "plot" });
  for (const value of yTicks ?? ticks(ys[0], ys[1], Math.max(2, Math.floor(h / 42)))) {
    root.append(
      svg("line", { class: "grid", x1: box.left, x2: box.left + w, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: box.left - 8, y: y(value), dy: "0.35em", "text-anchor": "end" }, yFormat(value)));
  }
  for (const value of xTicks ?? ticks(xs[0], xs[1], Math.max(2, Math.floor(w / 84)))) {
    root.append(
      svg("line", { class: "notch", x1: x(value), x2: x(value), y1: box.top + h, y2: box.top + h + 4 }),
      svg("text", { class: "tick", x: x(value), y: box.top + h + 18, "text-anchor": "middle" }, xFormat(value)));
  }
  root.append(svg("line", { class: "axis", x1: box.left, x2: box.left + w, y1: box.top + h, y2: box.top + h }));
  if (xTitle) {
    root.append(svg("text", { class: "title", x: box.left + w / 2, y: height - 6, "text-anchor": "middle" }, xTitle));
  }
  const inner = svg("g", {});
  root.append(inner);
  return { root, x, y, inner, box: { ...box, w, h } };
}

// "M…L…" through the points; a missing value breaks the line.
export function path(points) {
  let drawn = "";
  let open = false;
  for (const [px, py] of points) {
    if (py === null || Number.isNaN(py)) { open = false; continue; }
    drawn += `${open ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`;
    open = true;
  }
  return drawn;
}
