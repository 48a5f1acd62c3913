// What can be done with the heads that are off: count them, switch all on, score the rest, save it as a model.

import { el } from "../views/dom.js";
import { percent, scored } from "../views/format.js";
import { say } from "../views/say.js";
import { postJson, postStream } from "./api.js";

function describe(score) {
  const { value, interval, unit } = score;
  const shown = scored(value, unit);
  return interval ? `${shown} [${scored(interval.low, unit)}, ${scored(interval.high, unit)}]` : shown;
}

function scoreTable({ before, after, rows }, compared) {
  const names = Object.keys(before).filter((name) => typeof before[name]?.value === "number").slice(0, 6);
  return el("div", { class: "scores" },
    el("table", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, say("score")), el("th", { scope: "col" }, say("all heads")), compared && el("th", { scope: "col" }, say("this selection")))),
      el("tbody", {}, names.map((name) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, describe(before[name])), compared && el("td", {}, describe(after[name])))))),
    el("p", { class: "fine" }, say("{} rows; in brackets, the 95 % confidence interval", rows)));
}

// context: {model, info, state, changed(), fail(error)}.
export function makeSelection({ model, info, state, changed, fail }) {
  const count = el("p", { class: "selection-count", "aria-live": "polite" });
  const results = el("div", { class: "selection-results" });
  const progress = el("progress", { max: 1, value: 0, "aria-label": say("Scoring") });
  progress.hidden = true;
  let running = null;
  let shownFor = null;

  const allOn = el("button", { type: "button", class: "small-button", id: "all-on", onclick: () => { state.off.clear(); state.covered.clear(); changed(); } }, say("All on"));
  const score = el("button", { type: "button", class: "small-button", id: "score", onclick: evaluate }, say("Score on validation data"));
  const name = el("input", { type: "text", id: "save-name", placeholder: say("new name"), "aria-label": say("name of the new model"), pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", maxlength: 100 });
  const save = el("button", { type: "button", class: "small-button", id: "save", onclick: write }, say("Save as a pruned model"));
  const saving = info.saves && el("div", { class: "saving" }, name, save);

  async function evaluate() {
    if (running) { running.abort(); return; }
    running = new AbortController();
    progress.hidden = false;
    progress.value = 0;
    score.textContent = say("Stop");
    const compared = state.off.size > 0;
    try {
      for await (const event of postStream(`v1/evaluate/${model.id}`, { heads_off: [...state.off] }, running.signal)) {
        if (event.total) progress.value = event.done / event.total;
        else results.replaceChildren(scoreTable(event, compared));
      }
    } catch (error) {
      fail(error);
    } finally {
      running = null;
      progress.hidden = true;
      score.textContent = say("Score on validation data");
    }
  }

  async function write() {
    save.disabled = true;
    try {
      const done = await postJson(`v1/save/${model.id}`, { heads_off: [...state.off], name: name.value.trim() });
      const { before, after } = done.parameters;
      results.replaceChildren(el("p", { class: "fine" }, say("Saved as {}: {} parameters fewer ({}).", done.path, (before - after).toLocaleString("en-US"), percent((before - after) / before))));
    } catch (error) {
      fail(error);
    } finally {
      update();
    }
  }

  function update() {
    const selected = [...state.off].sort().join();
    if (selected !== shownFor) results.replaceChildren(); // of another selection
    shownFor = selected;
    const parts = [state.off.size > 0 && say("{} of {} heads are off", state.off.size, model.heads.length), state.covered.size > 0 && say("{} tokens are covered", state.covered.size)];
    count.textContent = parts.filter(Boolean).join(" · ") || say("All heads are on. Click “Switch off” and then heads, or press x on one, to see what changes.");
    allOn.disabled = !state.off.size && !state.covered.size;
    save.disabled = !state.off.size;
  }
  update();
  const node = el("section", { class: "selection", id: "selection" }, count, el("div", { class: "row" }, allOn, info.rows > 0 && score), saving, progress, results);
  return { node, update };
}
