// One head, large: lines, across, text, map; or the rollout of all heads. Long inputs: rows are asked for one by one.

import { acrossView } from "../views/across.js";
import { choice, el } from "../views/dom.js";
import { linesView } from "../views/line_view.js";
import { mapOf } from "../views/map.js";
import { say } from "../views/say.js";
import { opened } from "../views/weights.js";
import { wordsView } from "../views/text_view.js";
import { postJson } from "./api.js";
import { download } from "./export.js";

const FEW = 48; // words that lines are drawn between
const WHOLE = 256; // words up to which all weights are fetched
const STRONGEST = 64; // keys of a fetched row that are kept
const CJK = /[\u3040-\u30ff\u3400-\u9fff]/;

// Words of one or two signs, most of them Han or kana: they are read along a line.
function isAcross(words) {
  const inside = words.filter((word) => !/^[[<]/.test(word));
  return inside.length > 0 && inside.filter((word) => CJK.test(word)).length >= inside.length / 2;
}

export class HeadView {
  // ask: {model, input(), window(), side()}; chosen(mode): the way to look was changed.
  constructor(ask, chosen, caption = "") {
    this.ask = ask;
    this.chosen = chosen;
    this.maps = new Map();
    this.modes = el("div", { class: "modes" });
    this.place = el("div", { class: "wide drawn" });
    this.node = el("div", { class: "head-view" }, caption && el("h3", {}, caption), this.modes, this.place);
    this.last = 0;
    new ResizeObserver(() => {
      if (this.map && this.place.clientWidth !== this.last) this.draw();
    }).observe(this.place);
  }

  // Another input: nothing that was fetched counts any more.
  forget() {
    this.round = (this.round ?? 0) + 1; // what is still on its way belongs to the text before
    this.wanted = null;
    this.maps.clear();
    this.map = null;
    this.modes.replaceChildren();
    this.place.replaceChildren();
  }

  offered() {
    const { queries, keys } = this.view;
    const few = Math.max(queries.length, keys.length) <= FEW;
    const lines = few ? (isAcross(queries) ? ["across", "lines"] : ["lines", "across"]) : [];
    const flow = this.view.kind === "self" && queries.length <= 2 * WHOLE ? ["rollout"] : [];
    return [...lines, "text", "map", ...flow];
  }

  async show(view, address, mode) {
    this.view = view;
    this.address = address;
    const offered = this.offered();
    this.mode = offered.includes(mode) ? mode : offered[0];
    const names = { lines: say("Lines"), across: say("Across"), text: say("Text"), map: say("Map"), rollout: say("Rollout of all heads") };
    this.modes.replaceChildren(choice(say("How to show it"), offered.map((one) => [one, names[one]]), this.mode, (one) => this.chosen(one)),
      el("span", { class: "exports" },
        el("button", { type: "button", class: "small-button", onclick: () => this.save("svg") }, "SVG"),
        el("button", { type: "button", class: "small-button", onclick: () => this.save("png") }, "PNG")));
    this.map = null;
    this.place.classList.add("waiting");
    const wanted = this.mode === "rollout" ? `${view.stack} rollout` : address;
    const { round } = this;
    this.wanted = wanted;
    if (!this.maps.has(wanted)) {
      const map = await (this.mode === "rollout" ? this.fetchRollout() : this.fetchMap(address));
      if (round !== this.round) return;
      this.maps.set(wanted, map);
    }
    if (this.wanted !== wanted) return;
    this.map = this.maps.get(wanted);
    this.place.classList.remove("waiting");
    this.draw();
  }

  body(more) {
    return { input: this.ask.input(), window: this.ask.window(), side: this.ask.side(), ...more };
  }

  async fetchMap(address) {
    const { queries, keys } = this.view;
    if (Math.max(queries.length, keys.length) <= WHOLE) {
      const { weights } = await postJson(`v1/heads/${this.ask.model}`, this.body({ heads: [address], statistics: false }));
      return { address, shape: [queries.length, keys.length], data: Float32Array.from(weights[address].flat()) };
    }
    const picture = await postJson(`v1/picture/${this.ask.model}`, this.body({ heads: [address], bands: 96 }));
    const map = opened(picture.views.flatMap((view) => view.maps).find((one) => one.address === address), picture.bits);
    map.exact = new Map();
    map.fetchRow = async (word) => {
      const { weights } = await postJson(`v1/heads/${this.ask.model}`, this.body({ heads: [address], rows: [word], statistics: false }));
      const best = Array.from(weights[address][0], (weight, key) => [key, weight]).sort((a, b) => b[1] - a[1]).slice(0, STRONGEST);
      map.exact.set(word, { keys: best.map(([key]) => key), weights: best.map(([, weight]) => weight) });
    };
    return map;
  }

  async fetchRollout() {
    const { stack, kind, maps } = this.view;
    const picture = await postJson(`v1/picture/${this.ask.model}`, this.body({ heads: [maps[0].address], bands: 1, rollout: true }));
    const found = picture.views.find((view) => view.stack === stack && view.kind === kind).rollout;
    return opened({ address: "rollout", ...found }, picture.bits);
  }

  draw() {
    const { queries, keys, kind } = this.view;
    const width = Math.floor(this.place.clientWidth);
    if (width < 1) return;
    this.last = this.place.clientWidth;
    const mode = this.mode === "rollout" ? (queries.length <= FEW ? "lines" : "map") : this.mode;
    const draw = {
      lines: () => linesView(this.map, queries, keys, width),
      across: () => acrossView(this.map, queries, keys),
      text: () => wordsView(this.map, queries, keys, kind === "self"),
      map: () => mapOf(this.map, this.view, width, 16),
    }[mode];
    this.place.replaceChildren(draw());
  }

  save(format) {
    if (this.map) download(format, { map: this.map, queries: this.view.queries, keys: this.view.keys, mode: this.mode, title: this.map.address });
  }
}
