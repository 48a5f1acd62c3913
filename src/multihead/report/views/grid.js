// All heads of one kind of attention as small maps, layers by heads.

import { el } from "./dom.js";
import { hover } from "./tooltip.js";
import { opened } from "./weights.js";
import { pixels } from "./heatmap.js";
import { say } from "./say.js";

// current: the address of the head that is shown large. chosen(map, event): one was clicked. off: addresses of heads
// that are switched off. layer(maps): a layer's name was clicked; without it, names are no buttons.
export function gridOf(view, width, { bits, current, chosen, off = new Set(), layer: wholeLayer = null }) {
  const layers = new Map();
  for (const map of view.maps) {
    const layer = Number(map.address.split(".")[1]);
    if (!layers.has(layer)) layers.set(layer, []);
    layers.get(layer).push(map);
  }
  const highest = Math.max(...view.maps.map((map) => Number(map.address.split(".")[3]))) + 1;
  const phone = width < 500;
  const left = phone ? 24 : 62;
  const size = Math.max(18, Math.min(layers.size > 8 ? 48 : 96, Math.floor((width - left - 6) / highest) - (phone ? 3 : 6)));
  const grid = el("div", { class: phone ? "heads narrow" : "heads", role: "group", "aria-label": say("Heads by layer") });
  grid.style.gridTemplateColumns = `${left - 6}px repeat(${highest}, ${size}px)`;
  grid.append(el("span", {}), ...Array.from({ length: highest }, (_, head) => el("span", { class: "tick" }, head)));
  for (const [layer, maps] of layers) {
    const tick = phone ? layer : say("layer {}", layer);
    grid.append(wholeLayer ? el("button", { type: "button", class: "tick switch", title: say("Switch this layer off or on"), onclick: () => wholeLayer(maps) }, tick)
      : el("span", { class: "tick" }, tick));
    for (let head = 0; head < highest; head += 1) {
      const map = maps.find((one) => Number(one.address.split(".")[3]) === head);
      if (!map) {
        const gone = el("span", { class: "gone", title: say("cut out") });
        gone.style.height = `${size}px`;
        grid.append(gone);
        continue;
      }
      opened(map, bits);
      const label = [map.address, say(map.name), off.has(map.address) && say("off")].filter(Boolean);
      const button = el("button", {
        type: "button", class: off.has(map.address) ? "thumb off" : "thumb", "data-head": map.address,
        "aria-pressed": String(map.address === current), "aria-label": label.join(" "), onclick: (event) => chosen(map, event),
      }, pixels(map, size - 2, size - 2));
      hover(button, () => label);
      grid.append(button);
    }
  }
  return grid;
}
