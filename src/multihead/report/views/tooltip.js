// One small box that follows the pointer; what it says is also in a table, a label or the text.

import { el } from "./dom.js";

let box = null;

export function tell(event, lines) {
  if (!box) {
    box = el("div", { class: "tip", "aria-hidden": "true" });
    document.body.append(box);
    window.addEventListener("pointerdown", hush, { capture: true });
    window.addEventListener("scroll", hush, { passive: true, capture: true });
  }
  box.replaceChildren(...lines.map((line, place) => el("div", { class: place ? "" : "first", dir: "auto" }, line)));
  box.classList.add("shown");
  const { width, height } = box.getBoundingClientRect();
  const right = event.clientX + 16 + width < document.documentElement.clientWidth;
  const below = event.clientY + 16 + height < window.innerHeight;
  box.style.left = `${Math.max(4, right ? event.clientX + 16 : event.clientX - width - 12)}px`;
  box.style.top = `${Math.max(4, below ? event.clientY + 16 : event.clientY - height - 12)}px`;
}

export function hush() {
  if (box) box.classList.remove("shown");
}

// lines(event) says what to show, or null.
export function hover(node, lines, left = () => {}) {
  const move = (event) => {
    const said = lines(event);
    if (said) tell(event, said);
    else hush();
  };
  const leave = (event) => { // a lifted finger leaves what it asked for on the screen
    if (event.pointerType === "touch") return;
    hush();
    left();
  };
  node.addEventListener("pointermove", move);
  node.addEventListener("pointerdown", move);
  node.addEventListener("pointerleave", leave);
  node.addEventListener("pointercancel", leave);
}
