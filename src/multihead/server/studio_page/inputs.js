// What a task reads, as a form; and examples of it.

import { el } from "../views/dom.js";
import { say } from "../views/say.js";

const ROWS = { text: 4, source: 4, context: 7, prompt: 4, text_a: 3, text_b: 3, question: 2 };
const NAMES = {
  text: "Text", source: "Source", context: "Passage", prompt: "Prompt", text_a: "First text", text_b: "Second text", question: "Question",
};
const PASSAGE = "The Rhine rises in the Swiss Alps and flows north through Germany and the Netherlands. It reaches the North Sea near Rotterdam after 1,230 kilometres.";
const EXAMPLES = {
  ner: [
    { text: "Angela Merkel visited the Siemens plant in Beijing on Monday." },
    { text: "The European Commission fined Microsoft after a complaint from Opera Software in Oslo." },
    { text: "昨天，王小明在北京大学见到了来自上海的同事。" },
  ],
  classify: [
    { text: "A charming and often affecting journey." },
    { text: "The plot is thin, the jokes are old, and nobody seems to care." },
    { text: "这部电影很好看，演员也非常出色。" },
  ],
  match: [{ text_a: "A man is playing a guitar.", text_b: "Someone plays an instrument." }, { text_a: "How do I reset my password?", text_b: "The weather is fine today." }],
  answer: [{ question: "Where does the Rhine reach the sea?", context: PASSAGE }, { question: "Where does the Rhine rise?", context: PASSAGE }],
  translate: [{ source: "A dog runs along the beach." }, { source: "Two children are playing in the snow." }],
  summarize: [{ source: PASSAGE }],
  generate: [{ prompt: "Once upon a time" }, { prompt: "The capital of France is" }],
  mask: [{ text: "The capital of France is {}." }, { text: "She {} to the station every morning." }],
  denoise: [{ text: "The capital of France {} Paris." }],
  embed: [{ text: "How do I reset my password?" }],
};

const CJK = /[\u3040-\u30ff\u3400-\u9fff]/;

// A word list as the text it was; Chinese has no spaces.
const joined = (value) => (Array.isArray(value) ? value.join(value.some((word) => CJK.test(word)) ? "" : " ") : value);

export const columnsOf = (model) => (model.task === "ner" ? ["text"] : model.inputs);

export function examplesOf(model, info) {
  const own = info.examples.map((row) => {
    const texts = Object.fromEntries(Object.entries(row).map(([name, value]) => [name === "tokens" ? "text" : name, joined(value)]));
    return texts;
  });
  const builtIn = (EXAMPLES[model.task] ?? []).map((row) =>
    Object.fromEntries(Object.entries(row).map(([name, text]) => [name, text.replace("{}", info.mask)])));
  return [...own, ...builtIn].filter((row) => columnsOf(model).every((column) => typeof row[column] === "string"));
}

// What the API takes for the texts of a form.
export function inputOf(model, info, texts) {
  if (model.task === "generate" && info.chat) return { messages: [{ role: "user", content: texts.prompt ?? "" }] };
  return Object.fromEntries(columnsOf(model).map((column) => [column, texts[column] ?? ""]));
}

export const isEmpty = (model, texts) => columnsOf(model).some((column) => !(texts[column] ?? "").trim());

// typed(texts): called at every key. submitted(): Ctrl+Enter.
export function makeForm(model, info, texts, suffix, { typed, submitted }) {
  const values = { ...texts };
  const areas = new Map();
  const fields = columnsOf(model).map((column) => {
    const id = `field-${column}-${suffix}`;
    const area = el("textarea", { id, rows: ROWS[column] ?? 3, dir: "auto", spellcheck: "false", autocomplete: "off" });
    area.value = texts[column] ?? "";
    area.addEventListener("input", () => { values[column] = area.value; typed({ ...values }); });
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submitted(); }
    });
    areas.set(column, area);
    return el("div", { class: "field" }, el("label", { for: id }, say(NAMES[column] ?? column)), area);
  });
  const examples = examplesOf(model, info);
  const clip = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);
  const choose = examples.length > 0 && el("select", { "aria-label": say("Examples"), class: "examples", id: `examples-${suffix}` },
    el("option", { value: "" }, say("Choose an example …")),
    examples.map((row, place) => el("option", { value: place }, clip(Object.values(row).join(" · ")))));
  if (choose) {
    choose.addEventListener("change", () => {
      const row = examples[Number(choose.value)];
      if (choose.value === "" || !row) return;
      for (const [column, area] of areas) { area.value = row[column]; values[column] = row[column]; }
      choose.value = "";
      typed({ ...values });
      submitted();
    });
  }
  return el("div", { class: "form" }, fields, choose);
}
