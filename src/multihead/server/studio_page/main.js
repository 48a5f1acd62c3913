// The studio: pick a model, give it a text, see what it says, look at its heads and switch them off.

import { choice, el } from "../views/dom.js";
import { say } from "../views/say.js";
import { getJson, useKey } from "./api.js";
import { LANGUAGES, useLanguage } from "./language.js";
import { failIn } from "./problems.js";
import { readLink, state, writeLink } from "./state.js";
import { Studio } from "./studio.js";

const page = document.getElementById("studio");
let models = [];
let studio = null; // what is on the page for the chosen model

function askKey() {
  const field = el("input", { type: "password", id: "key", autocomplete: "current-password", "aria-label": say("Key of the server") });
  const form = el("form", { class: "row" }, field, el("button", { type: "submit" }, say("Go on")));
  form.addEventListener("submit", (event) => { event.preventDefault(); useKey(field.value); start(); });
  return form;
}

function drawFrame(content) {
  const language = choice(say("Language"), LANGUAGES, state.language, (code) => { state.language = useLanguage(code); writeLink(); show(); });
  const select = el("select", { id: "model", "aria-label": say("Model") }, models.map((model) => el("option", { value: model.id, selected: model.id === state.model }, `${model.id} (${say(model.task)})`)));
  select.addEventListener("change", () => {
    Object.assign(state, { model: select.value, input: {}, second: null, head: null, view: null, mode: null, window: 0, side: 0 });
    state.off.clear();
    state.covered.clear();
    show();
  });
  const copy = el("button", { type: "button", class: "small-button", id: "share", onclick: async () => {
    writeLink();
    try { await navigator.clipboard.writeText(window.location.href); copy.textContent = say("Link copied"); } catch { copy.textContent = say("The address bar has the link"); }
    setTimeout(() => { copy.textContent = say("Copy the link"); }, 2500);
  } }, say("Copy the link"));
  page.replaceChildren(
    el("header", { class: "top" }, el("h1", {}, el("span", { class: "brand" }, "multihead"), " ", say("studio")),
      models.length > 0 && el("label", { class: "model" }, el("span", { class: "unseen" }, say("Model")), select),
      el("span", { class: "spring" }), models.length > 0 && copy, language),
    content);
  document.title = state.model ? `${state.model} · multihead studio` : "multihead studio";
}

async function show() {
  const model = models.find((one) => one.id === state.model) ?? models[0];
  const known = state.model === null || model.id === state.model;
  state.model = model.id;
  state.off = new Set([...state.off].filter((address) => model.heads.includes(address)));
  const problem = el("div", { class: "problems" });
  try {
    const info = await getJson(`v1/studio/${model.id}`);
    studio = new Studio(model, info);
    drawFrame(el("div", {}, problem, studio.node));
    if (!known) failIn(problem, { message: say("The link names a model that is not served here; this is another one.") });
    await Promise.all([studio.first, studio.second].filter(Boolean).map((side) => studio.refresh(side)));
    studio.markOff();
  } catch (error) {
    drawFrame(problem);
    failIn(problem, error);
  }
}

async function start() {
  readLink();
  state.language = useLanguage(state.language ?? (navigator.language?.startsWith("zh") ? "zh" : "en"));
  try {
    models = (await getJson("v1/models")).data;
    await show();
  } catch (error) {
    const problem = el("div", { class: "problems" });
    drawFrame(problem);
    failIn(problem, error);
    if (error.code === "no_key") problem.append(askKey());
  }
}

window.addEventListener("hashchange", start);
start();
