// Training curves: one picture per panel, the kept step marked, all lines read at the pointer.

import { el, svg, fit } from "./dom.js";
import { short, count } from "./format.js";
import { frame, path, roomy } from "./plot.js";
import { hover } from "./tooltip.js";

const HEIGHT = 240;
const STYLES = 6; // as many as style.css has

function nearest(steps, at) {
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle] + steps[middle + 1]) / 2 < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawing(curves, xs, best, width) {
  const ys = roomy(curves.flatMap((curve) => [...curve.values, ...(curve.low ?? []), ...(curve.high ?? [])]));
  const { root, x, y, inner, box } = frame({ width, height: HEIGHT, xs, ys, xTitle: "step" });
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", curves.map((curve) => curve.name).join(", "));
  if (best !== null && best !== undefined) {
    const flip = x(best) > box.left + box.w * 0.6;
    inner.append(
      svg("line", { class: "best", x1: x(best), x2: x(best), y1: box.top, y2: box.top + box.h }),
      svg("text", { class: "tick", x: x(best) + (flip ? 4 : -4), y: box.top - 8, "text-anchor": flip ? "end" : "start" },
        `kept: ${count(best)}`));
  }
  curves.forEach((curve, place) => {
    const points = (values) => curve.steps.map((step, at) => [x(step), values[at] === null ? null : y(values[at])]);
    if (curve.low) {
      const up = points(curve.high).filter((point) => point[1] !== null);
      const down = points(curve.low).filter((point) => point[1] !== null).reverse();
      inner.append(svg("path", { class: `band line-${place % STYLES}`, d: `${path([...up, ...down])}Z` }));
    }
    inner.append(svg("path", { class: `curve line-${place % STYLES}`, d: path(points(curve.values)) }));
    if (curve.steps.length <= 24) {
      points(curve.values).filter((point) => point[1] !== null).forEach(([cx, cy]) =>
        inner.append(svg("circle", { class: `dot line-${place % STYLES}`, cx, cy, r: 2.5 })));
    }
  });
  const cross = svg("line", { class: "cross", y1: box.top, y2: box.top + box.h, visibility: "hidden" });
  const marks = curves.map((_, place) => svg("circle", { class: `dot line-${place % STYLES}`, r: 4, visibility: "hidden" }));
  root.append(cross, ...marks);
  hover(root, (event) => {
    const scale = width / root.getBoundingClientRect().width;
    const px = (event.clientX - root.getBoundingClientRect().left) * scale;
    const step = xs[0] + ((px - box.left) / box.w) * (xs[1] - xs[0]);
    const places = curves.map((curve) => nearest(curve.steps, step));
    const at = curves[0].steps[places[0]];
    cross.setAttribute("x1", x(at));
    cross.setAttribute("x2", x(at));
    cross.setAttribute("visibility", "visible");
    const said = curves.map((curve, place) => {
      const value = curve.values[places[place]];
      marks[place].setAttribute("visibility", value === null ? "hidden" : "visible");
      if (value !== null) {
        marks[place].setAttribute("cx", x(curve.steps[places[place]]));
        marks[place].setAttribute("cy", y(value));
      }
      const spread = curve.low && value !== null
        ? ` (${short(curve.low[places[place]])} – ${short(curve.high[places[place]])})` : "";
      return `${curve.name} ${short(value)}${spread}`;
    });
    return [`step ${count(Math.round(at))}`, ...said];
  }, () => [cross, ...marks].forEach((mark) => mark.setAttribute("visibility", "hidden")));
  return root;
}

export function curvesView(curves, best) {
  const steps = curves.flatMap((curve) => curve.steps);
  const xs = [0, Math.max(1, steps.reduce((most, step) => Math.max(most, step), 0))];
  const panels = [...new Set(curves.map((curve) => curve.panel))];
  return el("div", { class: "panels" }, panels.map((panel) => {
    const inside = curves.filter((curve) => curve.panel === panel && curve.steps.length);
    const lost = inside.reduce((sum, curve) => sum + curve.lost, 0);
    if (!inside.length) return null;
    return el("figure", {},
      el("figcaption", {}, el("h3", {}, panel),
        el("div", { class: "legend" }, inside.map((curve, place) =>
          el("span", {}, el("i", { class: `key line-${place % STYLES}` }), curve.name)),
        inside.some((curve) => curve.low) && el("span", {}, "band: lowest to highest"))),
      fit(el("div", { class: "drawn" }), (width) => drawing(inside, xs, best, width)),
      lost > 0 && el("p", { class: "alarm" }, `${count(lost)} values were not finite numbers.`));
  }));
}
