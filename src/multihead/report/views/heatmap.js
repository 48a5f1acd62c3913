// A matrix of weights as a canvas, in the page's own colours; redrawn when light turns to dark.

import { el } from "./dom.js";

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

// Each pixel shows the largest weight that falls on it, so that a thin diagonal stays a line; roots, so that small
// weights are seen.
function paint(canvas, data, [rows, columns], width, height) {
  const [from, to] = [colour("--raised"), colour("--ink")];
  const image = new ImageData(width, height);
  for (let y = 0; y < height; y += 1) {
    const top = Math.floor((y * rows) / height);
    const bottom = Math.max(top + 1, Math.floor(((y + 1) * rows) / height));
    for (let x = 0; x < width; x += 1) {
      const left = Math.floor((x * columns) / width);
      const right = Math.max(left + 1, Math.floor(((x + 1) * columns) / width));
      let most = 0;
      for (let r = top; r < bottom; r += 1) {
        for (let c = left; c < right; c += 1) most = Math.max(most, data[r * columns + c]);
      }
      const share = Math.sqrt(Math.min(1, most));
      const at = (y * width + x) * 4;
      for (let i = 0; i < 3; i += 1) image.data[at + i] = from[i] + (to[i] - from[i]) * share;
      image.data[at + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export function pixels(map, width, height, given = {}) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  const canvas = el("canvas", { width: w, height: h, ...given });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  paint(canvas, map.data, map.shape, w, h);
  const drawn = new WeakRef(canvas); // one that left the page for good may be forgotten
  const redraw = () => {
    const still = drawn.deref();
    if (still) paint(still, map.data, map.shape, w, h);
    else dark.removeEventListener("change", redraw);
  };
  dark.addEventListener("change", redraw);
  return canvas;
}
