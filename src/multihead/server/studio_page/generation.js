// A text that grows token by token: how sure the model was of each, and what else it might have written.

import { el, user } from "../views/dom.js";
import { percent } from "../views/format.js";
import { hover } from "../views/tooltip.js";
import { say } from "../views/say.js";
import { bars } from "./predictions.js";

// Unsure tokens stand out: the less likely, the warmer.
function shade(probability) {
  const doubt = Math.max(0, 1 - probability);
  return `color-mix(in srgb, var(--doubt) ${Math.round(70 * doubt)}%, transparent)`;
}

export function makeGrowingText(prompt) {
  const place = user("p", { class: "written growing", "aria-live": "polite" }, prompt, el("span", { class: "quiet" }, prompt));
  const detail = el("div", { class: "alternatives" });
  const count = el("p", { class: "fine" });
  let number = 0;
  let sum = 0;
  let held = null;

  function show(token, node) {
    if (held) held.classList.remove("now");
    held = node;
    node.classList.add("now");
    detail.replaceChildren(el("h3", {}, say("Instead of “{}”", token.text.replace(/\n/g, "⏎"))),
      ...bars(token.alternatives.map((one) => ({ label: one.text.replace(/\n/g, "⏎") || "␣", before: one.probability }))));
  }
  function add(token) {
    if (token.ends) return;
    number += 1;
    sum += Math.log(Math.max(token.probability, 1e-9));
    const node = el("button", { type: "button", class: "piece" }, token.text || "·");
    node.style.backgroundColor = shade(token.probability);
    hover(node, () => [`${token.text.trim() || "␣"} ${percent(token.probability)}`, ...token.alternatives.slice(0, 5).map((one) => `${one.text} ${percent(one.probability)}`)]);
    node.addEventListener("click", () => show(token, node));
    place.append(node);
    count.textContent = say("{} tokens; mean probability {}. Click a token for its alternatives.", number, percent(Math.exp(sum / number)));
  }
  function finish(text) {
    if (text) place.append(text);
    place.classList.add("finished");
  }
  return { node: el("div", {}, place, count, detail), add, finish };
}
