// The head that is large, as a picture of its own: SVG, or PNG made of it.

import { svg } from "../views/dom.js";
import { places } from "../views/across.js";
import { rowOf } from "../views/weights.js";

const INK = "#14408c";
const TEXT = "#1b1d21";
const FONT = "system-ui, 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif";
const STEP = 24;
const FAINT = 0.02;

const word = (x, y, anchor, text) => svg("text", { x, y, "text-anchor": anchor, fill: TEXT, "font-size": 14, "font-family": FONT }, text);
const line = (d, weight) => svg("path", { d, fill: "none", stroke: INK, "stroke-width": (0.5 + 4 * weight).toFixed(2), "stroke-opacity": Math.min(1, 0.1 + weight).toFixed(3) });

function drawLines({ map, queries, keys }) {
  const [side, wide] = [150, 320];
  const parts = [];
  queries.forEach((_, query) => {
    for (const [key, weight] of rowOf(map, query) ?? []) {
      if (weight < FAINT) break;
      const [a, b] = [(query + 0.5) * STEP, (key + 0.5) * STEP];
      parts.push(line(`M${side} ${a}C${side + wide / 2} ${a} ${side + wide / 2} ${b} ${side + wide} ${b}`, weight));
    }
  });
  queries.forEach((text, i) => parts.push(word(side - 8, (i + 0.5) * STEP + 5, "end", text)));
  keys.forEach((text, i) => parts.push(word(side + wide + 8, (i + 0.5) * STEP + 5, "start", text)));
  return { width: 2 * side + wide, height: Math.max(queries.length, keys.length) * STEP, parts };
}

function drawAcross({ map, queries, keys }) {
  const [from, to] = [places(queries), places(keys)];
  const parts = [];
  queries.forEach((_, query) => {
    for (const [key, weight] of rowOf(map, query) ?? []) {
      if (weight < FAINT) break;
      const [a, b] = [from.middles[query], to.middles[key]];
      parts.push(line(`M${a} 26C${a} 90 ${b} 90 ${b} 150`, weight));
    }
  });
  queries.forEach((text, i) => parts.push(word(from.middles[i], 18, "middle", text)));
  keys.forEach((text, i) => parts.push(word(to.middles[i], 168, "middle", text)));
  return { width: Math.max(from.end, to.end), height: 180, parts };
}

function drawMap({ map, queries, keys }) {
  const [rows, columns] = map.shape;
  const labels = !map.exact && Math.max(rows, columns) <= 90;
  const cell = labels ? 18 : Math.max(1, Math.min(6, 700 / columns));
  const [left, top] = labels ? [120, 120] : [0, 0];
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  map.data.forEach((weight, at) => {
    image.data.set([0x14, 0x40, 0x8c, Math.round(255 * Math.sqrt(Math.min(1, weight)))], 4 * at);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const parts = [svg("image", { x: left, y: top, width: columns * cell, height: rows * cell, href: canvas.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" })];
  if (labels) {
    queries.forEach((text, i) => parts.push(word(left - 6, top + (i + 0.5) * cell + 5, "end", text)));
    keys.forEach((text, i) => parts.push(svg("g", { transform: `translate(${left + (i + 0.5) * cell + 5},${top - 6}) rotate(-90)` }, word(0, 0, "start", text))));
  }
  return { width: left + columns * cell, height: top + rows * cell, parts };
}

export function drawPicture(given) {
  const draw = given.mode === "across" ? drawAcross : given.mode === "lines" ? drawLines : drawMap;
  const { width, height, parts } = draw(given);
  const [wide, high] = [Math.ceil(width + 32), Math.ceil(height + 64)];
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: wide, height: high, viewBox: `0 0 ${wide} ${high}` },
    svg("rect", { width: wide, height: high, fill: "#ffffff" }),
    svg("text", { x: 16, y: 26, fill: TEXT, "font-size": 15, "font-weight": 600, "font-family": FONT }, given.title),
    svg("g", { transform: "translate(16,44)" }, parts));
}

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export async function download(format, given) {
  const drawn = drawPicture(given);
  const blob = new Blob([new XMLSerializer().serializeToString(drawn)], { type: "image/svg+xml;charset=utf-8" });
  const name = `${given.title}.${format}`;
  if (format === "svg") { offer(blob, name); return; }
  const image = new Image();
  image.src = URL.createObjectURL(blob);
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 2 * Number(drawn.getAttribute("width"));
  canvas.height = 2 * Number(drawn.getAttribute("height"));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  canvas.toBlob((made) => offer(made, name), "image/png");
}
