// Elements from plain values. Text goes in as text nodes only: nothing here, or in any view, parses markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export function el(tag, given, ...children) {
  return filled(document.createElement(tag), given, children);
}

export function svg(tag, given, ...children) {
  return filled(document.createElementNS(SVG, tag), given, children);
}

// Which language's letter forms to use: one Han character looks different in Chinese and in Japanese.
function languageOf(text) {
  if (/[\u3040-\u30ff]/.test(text)) return "ja";
  if (/[\uac00-\ud7af]/.test(text)) return "ko";
  return /\p{Script=Han}/u.test(text) ? "zh" : null;
}

// Text of the user: its own direction and language, apart from the page's.
export function user(tag, given, text, ...children) {
  const content = children.length ? children : [text];
  return el(tag, { dir: "auto", lang: languageOf(text), ...given }, ...content);
}

// A name that may break after _ - / . and nowhere else, if it can help it.
export function label(given, text) {
  const parts = text.split(/(?<=[_\-/.])/);
  return user("span", given, text, ...parts.flatMap((part, place) => (place ? [el("wbr", {}), part] : [part])));
}

// Calls draw(width) now and whenever the box changes its width; what it returns replaces what was there.
export function fit(box, draw) {
  let last = 0;
  const redraw = () => {
    const width = Math.floor(box.clientWidth);
    if (width < 1 || width === last) return;
    last = width;
    box.replaceChildren(draw(width));
  };
  new ResizeObserver(redraw).observe(box);
  return box;
}

// One row of buttons of which one is pressed. names: [value, shown].
export function choice(label, names, pressed, chosen) {
  const buttons = names.map(([value, shown]) =>
    el("button", { type: "button", "aria-pressed": String(value === pressed), onclick: () => choose(value) }, shown));
  function choose(value) {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(names[place][0] === value)));
    chosen(value);
  }
  return el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

export const SHOWN = 20; // rows of a long table; as many as style.css leaves

// Shows the first rows (style.css hides the others); a button opens the rest. Of tables, paper gets all.
export function folded(node, rows, what, shown = SHOWN) {
  if (rows <= shown) return [node];
  node.classList.add("folded");
  const button = el("button", { type: "button", class: "more" }, `Show all ${rows} ${what}`);
  button.addEventListener("click", () => {
    const now = node.classList.toggle("folded");
    button.textContent = now ? `Show all ${rows} ${what}` : `Show the first ${shown}`;
  });
  return [node, button];
}
