// What is on the page for one model: texts and predictions on the left, heads on the right.

import { choice, el, fit } from "../views/dom.js";
import { gridOf } from "../views/grid.js";
import { say } from "../views/say.js";
import { makeAlignment } from "./alignment.js";
import { postJson } from "./api.js";
import { examplesOf, isEmpty } from "./inputs.js";
import { failIn } from "./problems.js";
import { makeSelection } from "./selection.js";
import { Side } from "./side.js";
import { state, writeLink } from "./state.js";

export class Studio {
  constructor(model, info) {
    Object.assign(this, { model, info, picture: null, clicks: "look", number: 0 });
    if (!examplesOf(model, info).length || !isEmpty(model, state.input)) state.input = { ...state.input };
    else state.input = { ...examplesOf(model, info)[0] };
    this.first = new Side(this, "a");
    this.second = null;
    this.selection = makeSelection({ model, info, state, changed: () => this.switched(), fail: (error) => failIn(this.selectionProblem, error) });
    this.selectionProblem = el("div", { class: "problems" });
    this.gridPlace = el("div", { class: "wide", id: "grid" });
    this.gridProblem = el("div", { class: "problems" });
    this.heading = el("h2", { id: "head-title" });
    this.about = el("p", { class: "note" });
    this.switchButton = el("button", { type: "button", class: "small-button", id: "switch-head", hidden: true, onclick: () => this.toggle([state.head]) });
    this.viewChoice = el("div", { class: "modes" });
    this.large = el("div", { class: "larges" }, this.first.heads.node);
    this.extra = el("div", {});
    this.secondPlace = el("div", {});
    this.node = this.layOut();
    fit(this.gridPlace, (width) => this.makeGrid(width));
    this.gridPlace.addEventListener("keydown", (event) => this.move(event));
    if (state.second) this.compareWith(state.second);
  }

  layOut() {
    const go = el("button", { type: "button", class: "primary", id: "predict", onclick: () => this.predict() }, say("Predict"), el("kbd", {}, "Ctrl+Enter"));
    const compare = el("button", { type: "button", class: "small-button", id: "compare", onclick: () => this.compareWith(this.second ? null : {}) }, say("Compare with a second text"));
    this.compareButton = compare;
    const clicks = choice(say("What a click on a head does"), [["look", say("Look")], ["switch", say("Switch off")]], this.clicks, (value) => { this.clicks = value; });
    return el("div", { class: "studio" },
      el("div", { class: "ask" },
        el("section", { id: "input-a" }, this.first.formPlace, el("div", { class: "row" }, go, compare)),
        el("section", { "aria-live": "polite" }, this.first.problem, this.first.shown, this.extra),
        this.secondPlace, this.selection.node, this.selectionProblem),
      el("div", { class: "look" },
        el("section", { id: "heads" },
          el("div", { class: "title-row" }, el("h2", {}, say("Heads")), clicks),
          el("p", { class: "note" }, say("Each small map is a head: a row is a token that looks, a column one that is looked at.")),
          this.viewChoice, this.gridProblem, this.gridPlace),
        el("section", { id: "head" }, el("div", { class: "title-row" }, this.heading, this.switchButton), this.about, this.large)));
  }

  compareWith(texts) {
    state.second = texts;
    this.compareButton.textContent = texts ? say("Close the second text") : say("Compare with a second text");
    if (!texts) {
      this.second?.heads.node.remove();
      this.second = null;
      this.secondPlace.replaceChildren();
    } else {
      this.second = new Side(this, "b");
      this.secondPlace.replaceChildren(el("section", { id: "input-b" }, el("h2", {}, say("Second text")), this.second.formPlace,
        el("div", { class: "row" }, el("button", { type: "button", class: "primary", id: "predict-b", onclick: () => this.predict(this.second) }, say("Predict")))),
      el("section", {}, this.second.problem, this.second.shown));
      this.large.append(this.second.heads.node);
    }
    this.large.classList.toggle("two", Boolean(this.second));
    writeLink();
  }

  // Everything anew, for a text that was typed.
  async predict(side = null) {
    state.covered.clear();
    if (!side || side === this.first) state.window = 0;
    writeLink();
    this.selection.update();
    await Promise.all((side ? [side] : [this.first, this.second].filter(Boolean)).map((one) => this.refresh(one)));
  }

  // Another text, or another part of it: what is drawn, and what is on its way, is of the one before.
  restart() {
    this.number += 1;
    this.picture = null;
    this.first.heads.forget();
    this.gridProblem.replaceChildren();
  }

  async refresh(side) {
    side.heads.forget();
    side.context = null; // a text that was written behind the prompt before
    if (side === this.second && isEmpty(this.model, side.texts)) return;
    if (side === this.first) this.restart();
    const predicted = side.predict();
    // A generated text takes its time: the heads of the prompt are drawn meanwhile, those of the whole text after it.
    const early = this.model.task === "generate" && !isEmpty(this.model, side.texts) && side === this.first;
    if (early) await this.draw();
    const { number } = this;
    if (!(await predicted)) {
      if (number === this.number && side === this.first && !early) this.redraw();
      return;
    }
    if (side === this.second) await this.showHead();
    else if (!early || side.context) {
      side.heads.forget();
      await this.draw();
    }
  }

  // Heads were switched: only the predictions change.
  async switched() {
    writeLink();
    this.selection.update();
    this.markOff();
    await Promise.all([this.first, this.second].filter((side) => side && !isEmpty(this.model, side.texts)).map((side) => side.predict()));
  }

  toggle(addresses) {
    const all = addresses.every((address) => state.off.has(address));
    for (const address of addresses) {
      if (all) state.off.delete(address);
      else state.off.add(address);
    }
    return this.switched();
  }

  async draw() {
    const number = (this.number += 1);
    try {
      const aligned = ["translate", "summarize", "denoise"].includes(this.model.task);
      const input = this.first.context ?? this.first.asked;
      const picture = await postJson(`v1/picture/${this.model.id}`, { input, window: state.window, side: state.side, rollout: aligned });
      if (number !== this.number) return;
      this.picture = picture;
      const views = picture.views.map((view) => `${view.stack}.${view.kind}`);
      if (!views.includes(state.view)) state.view = views.at(aligned ? -1 : 0);
      this.drawChoices(views);
      const cross = picture.views.find((view) => view.alignment);
      this.extra.replaceChildren(...(cross ? [makeAlignment(cross, picture.bits)] : []));
      this.pickHead();
      this.redraw();
      await this.showHead();
    } catch (error) {
      failIn(this.gridProblem, error);
    }
  }

  get view() { return this.picture?.views.find((view) => `${view.stack}.${view.kind}` === state.view); }

  // Shown first: a head that does something one can name.
  pickHead() {
    const { maps } = this.view;
    if (maps.some((map) => map.address === state.head)) return;
    const telling = (map) => map.name && !/mixed|broad|sink|partly/.test(map.name);
    state.head = (maps.find(telling) ?? maps[0]).address;
  }

  drawChoices(views) {
    const kinds = { self: say("self-attention"), cross: say("cross-attention") };
    const stacks = { encoder: say("encoder"), decoder: say("decoder") };
    const shown = (name) => { const [stack, kind] = name.split("."); return `${stacks[stack] ?? stack}, ${kinds[kind] ?? kind}`; };
    const parts = [];
    if (views.length > 1) parts.push(choice(say("Which attention"), views.map((name) => [name, shown(name)]), state.view, (name) => { state.view = name; this.pickHead(); this.redraw(); this.showHead(); }));
    if (this.picture.sides > 1) parts.push(choice(say("Which text"), [[0, say("First text")], [1, say("Second text")]], state.side, (side) => { state.side = side; this.restart(); this.draw(); }));
    if (this.picture.windows > 1) {
      const select = el("select", { id: "window", "aria-label": say("Part of the text") }, Array.from({ length: this.picture.windows }, (_, i) => el("option", { value: i, selected: i === state.window }, say("part {} of {}", i + 1, this.picture.windows))));
      select.addEventListener("change", () => { state.window = Number(select.value); this.restart(); this.draw(); });
      parts.push(select);
    }
    this.viewChoice.replaceChildren(...parts);
  }

  makeGrid(width) {
    if (!this.view) return el("p", { class: "fine" }, say("The heads appear here once a text was read."));
    return gridOf(this.view, width, {
      bits: this.picture.bits, current: state.head, off: state.off,
      chosen: (map, event) => (this.clicks === "switch" || event.shiftKey || event.altKey ? this.toggle([map.address]) : this.open(map.address)),
      layer: (maps) => this.toggle(maps.map((map) => map.address)),
    });
  }

  redraw() {
    const focused = this.gridPlace.contains(document.activeElement) && document.activeElement.dataset.head;
    if (this.gridPlace.clientWidth) this.gridPlace.replaceChildren(this.makeGrid(Math.floor(this.gridPlace.clientWidth)));
    if (focused) this.gridPlace.querySelector(`[data-head="${focused}"]`)?.focus();
  }

  open(address) {
    state.head = address;
    writeLink();
    this.markOff();
    return this.showHead();
  }

  markOff() {
    for (const thumb of this.gridPlace.querySelectorAll(".thumb")) {
      const { head } = thumb.dataset;
      thumb.classList.toggle("off", state.off.has(head));
      thumb.setAttribute("aria-pressed", String(head === state.head));
    }
    this.switchButton.textContent = state.off.has(state.head) ? say("Switch this head on") : say("Switch this head off");
  }

  async showHead() {
    const { view } = this;
    if (!view) return;
    const map = view.maps.find((one) => one.address === state.head) ?? view.maps[0];
    this.heading.textContent = map.address;
    this.switchButton.hidden = false;
    this.about.textContent = say("In this text: {}", say(map.name));
    this.markOff();
    writeLink();
    try {
      await this.first.heads.show(view, map.address, state.mode);
      if (this.second?.asked) {
        const { views } = await postJson(`v1/picture/${this.model.id}`, { input: this.second.asked, heads: [map.address], bands: 1 });
        await this.second.heads.show(views.find((one) => one.stack === view.stack && one.kind === view.kind), map.address, state.mode);
      }
    } catch (error) {
      failIn(this.gridProblem, error);
    }
  }

  // Arrows walk over the grid, Enter opens, x switches off.
  move(event) {
    const thumb = event.target.closest?.(".thumb");
    if (!thumb) return;
    if (event.key === "x") { this.toggle([thumb.dataset.head]); return; }
    const [stack, layer, kind, head] = thumb.dataset.head.split(".");
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step) return;
    event.preventDefault();
    this.gridPlace.querySelector(`[data-head="${stack}.${Number(layer) + step[0]}.${kind}.${Number(head) + step[1]}"]`)?.focus();
  }
}
