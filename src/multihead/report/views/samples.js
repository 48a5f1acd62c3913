// Texts that the model wrote, under what it wrote them from and beside what was wanted.

import { el, user, folded } from "./dom.js";

const FIRST = 10;

function row(name, text, kind) {
  return [el("dt", { class: "quiet" }, name), user("dd", { class: `text ${kind}` }, text)];
}

function item({ source, target, written, place }) {
  return el("li", {},
    el("dl", { class: "sample" }, row("from", source, "beside"), target && row("wanted", target, ""), row("written", written, "written")),
    place && el("p", { class: "under" }, user("code", { class: "place" }, place)));
}

export function samplesView(samples) {
  const list = el("ol", { class: "mistakes samples" }, samples.map(item));
  return el("div", {}, el("p", { class: "note" }, "The first ones of the data, good or bad."), folded(list, samples.length, "samples", FIRST));
}
