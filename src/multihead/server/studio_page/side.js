// One input with its form, its prediction and its view of the chosen head.

import { el } from "../views/dom.js";
import { say } from "../views/say.js";
import { postJson, postStream } from "./api.js";
import { makeGrowingText } from "./generation.js";
import { HeadView } from "./headview.js";
import { inputOf, isEmpty, makeForm } from "./inputs.js";
import { drawPrediction } from "./predictions.js";
import { failIn } from "./problems.js";
import { state, writeLink } from "./state.js";

const LONGEST = 32; // new tokens of a generated text

// Of two texts that are compared, each has one: a and b.
export class Side {
  constructor(studio, name) {
    Object.assign(this, { studio, name });
    this.problem = el("div", { class: "problems" });
    this.shown = el("div", { class: "shown", id: `prediction-${name}` });
    this.abort = null;
    this.input = () => inputOf(studio.model, studio.info, this.texts);
    this.formPlace = el("div", {});
    this.drawForm();
    this.heads = new HeadView({ model: studio.model.id, input: () => this.context ?? this.asked, window: () => (name === "a" ? state.window : 0), side: () => state.side },
      (mode) => { state.mode = mode; writeLink(); studio.showHead(); }, name === "a" ? say("First text") : say("Second text"));
  }

  get texts() { return (this.name === "a" ? state.input : state.second) ?? {}; }

  drawForm() {
    const { model, info } = this.studio;
    this.formPlace.replaceChildren(makeForm(model, info, this.texts, this.name, {
      typed: (texts) => { state[this.name === "a" ? "input" : "second"] = texts; writeLink(); },
      submitted: () => this.studio.predict(this),
    }));
  }

  // A new request takes the place of one that still runs.
  begin() {
    this.abort?.abort();
    this.abort = new AbortController();
    this.shown.classList.add("waiting");
    return this.abort.signal;
  }

  async predict() {
    const { model, info } = this.studio;
    if (isEmpty(model, this.texts)) {
      this.shown.replaceChildren();
      this.problem.replaceChildren(el("div", { class: "problem", role: "alert" }, say("Type a text first, or choose an example.")));
      return false;
    }
    const signal = this.begin();
    [this.asked, this.askedTexts] = [this.input(), { ...this.texts }]; // whatever is typed meanwhile
    try {
      if (model.task === "generate" && !state.off.size && !state.covered.size) await this.generate(signal);
      else await this.compare(signal);
      this.problem.replaceChildren();
      return true;
    } catch (error) {
      if (error.name !== "AbortError") this.shown.replaceChildren();
      failIn(this.problem, error);
      return false;
    } finally {
      if (!signal.aborted) this.shown.classList.remove("waiting");
    }
  }

  async compare(signal) {
    const { model } = this.studio;
    const off = { heads_off: [...state.off], tokens_off: [...state.covered] };
    let found;
    if (off.heads_off.length || off.tokens_off.length) {
      found = await postJson(`v1/whatif/${model.id}`, { input: this.asked, ...off }, signal);
    } else if (model.task === "embed") {
      const { data } = await postJson("v1/embeddings", { model: model.id, input: this.askedTexts.text }, signal);
      found = { before: { vector: data[0].embedding } };
    } else {
      const { prediction } = await postJson(`v1/predict/${model.id}`, { input: this.asked, interactive: true }, signal);
      found = { before: prediction };
    }
    this.shown.replaceChildren(drawPrediction(model, this.askedTexts, found));
  }

  async generate(signal) {
    const { model, info } = this.studio;
    const growing = makeGrowingText(info.chat ? "" : this.askedTexts.prompt);
    let text = "";
    this.shown.replaceChildren(growing.node);
    this.shown.classList.remove("waiting");
    for await (const event of postStream(`v1/generate/${model.id}`, { input: this.asked, max_tokens: LONGEST, temperature: 0 }, signal)) {
      text += event.text;
      if (event.done) growing.finish(event.text);
      else growing.add(event);
    }
    if (!info.chat) this.context = { prompt: this.askedTexts.prompt + text };
  }
}
