// A prediction as its task wants to be seen, with what changed without some heads marked. `after` is null where nothing
// is switched off.

import { el, user, folded } from "../views/dom.js";
import { percent } from "../views/format.js";
import { hover } from "../views/tooltip.js";
import { say } from "../views/say.js";

const COLOURS = 6; // of entity labels, in studio.css

// + 3.2 points, with a colour of its own; nothing where nothing is seen to move.
function change(before, after) {
  if (after === null || after === undefined || Math.abs(after - before) < 5e-4) return null;
  const points = (100 * (after - before)).toFixed(1);
  return el("span", { class: after > before ? "rise" : "fall" }, `${after > before ? "▲" : "▼"} ${points.replace("-", "−").replace(/^(?=\d)/, "+")}`);
}

// rows: {label, before, after?}. The bar is what is; the outline is what was.
export function bars(rows) {
  const items = rows.map(({ label, before, after = null }) => {
    const now = after ?? before;
    const fill = el("span", { class: "bar-fill" });
    fill.style.width = `${(100 * Math.max(0, Math.min(1, now))).toFixed(2)}%`;
    const track = el("span", { class: "bar-track" }, fill);
    if (after !== null) {
      const ghost = el("span", { class: "bar-ghost" });
      ghost.style.left = `${(100 * Math.max(0, Math.min(1, before))).toFixed(2)}%`;
      track.append(ghost);
    }
    return el("li", { class: "bar" }, user("span", { class: "bar-label" }, label), track,
      el("span", { class: "bar-value" }, percent(now)), el("span", { class: "bar-change" }, change(before, after)));
  });
  return folded(el("ul", { class: "bars" }, items), rows.length, say("classes"), 20);
}

const byScore = (scores, after) => Object.entries(scores)
  .map(([label, before]) => ({ label, before, after: after ? after[label] : null }))
  .sort((a, b) => b.before - a.before);

function verdict(before, after) {
  if (!after || after === before) return user("p", { class: "verdict" }, before);
  return el("p", { class: "verdict changed" }, user("del", {}, before), " → ", user("ins", {}, after));
}

function drawClasses({ before, after }) {
  const name = (one) => (one.labels ? one.labels.join(", ") || say("none") : one.label ?? percent(one.score));
  const scores = before.scores ?? { [before.label ?? say("score")]: before.score };
  const later = after && (after.scores ?? { [before.label ?? say("score")]: after.score });
  return [verdict(name(before), after && name(after)), ...bars(byScore(scores, later))];
}

// Text with marks: [{start, end, node(text)}], which do not overlap; offsets count code points.
function marked(text, marks) {
  const signs = [...text];
  const parts = [];
  let at = 0;
  for (const { start, end, make } of [...marks].sort((a, b) => a.start - b.start)) {
    if (start < at) continue;
    parts.push(signs.slice(at, start).join(""), make(signs.slice(start, end).join("")));
    at = end;
  }
  return user("p", { class: "marked" }, text, ...parts, signs.slice(at).join(""));
}

const sameSpan = (a, b) => a.start === b.start && a.end === b.end;
const overlaps = (a, b) => a.start < b.end && b.start < a.end;

function drawEntities({ before, after, text, labels }) {
  const types = [...new Set(labels.map((label) => label.replace(/^[BIES]-/, "")).filter((label) => label !== "O"))];
  const colour = (label) => `entity tint-${Math.max(0, types.indexOf(label)) % COLOURS}`;
  const now = after ?? before;
  const whole = before.text ?? text;
  const kept = (entity, others) => others.some((other) => sameSpan(entity, other) && other.label === entity.label);
  const marks = now.entities.map((entity) => {
    const was = after && before.entities.find((other) => sameSpan(other, entity));
    const fresh = after && !kept(entity, before.entities);
    const label = was && was.label !== entity.label ? `${was.label} → ${entity.label}` : entity.label;
    return {
      ...entity,
      make: (shown) => {
        const node = el("mark", { class: `${colour(entity.label)}${fresh ? " gained" : ""}` }, shown, el("small", {}, label, " ", was ? change(was.score, entity.score) : null));
        hover(node, () => [`${shown} · ${label}`, percent(entity.score)]);
        return node;
      },
    };
  });
  const lost = after ? before.entities.filter((entity) => !kept(entity, after.entities)) : [];
  for (const entity of lost) {
    if (marks.some((mark) => overlaps(mark, entity))) continue;
    marks.push({ ...entity, make: (shown) => el("mark", { class: `${colour(entity.label)} lost` }, shown, el("small", {}, el("del", {}, entity.label))) });
  }
  const gained = after ? after.entities.filter((entity) => !kept(entity, before.entities)).length : 0;
  return [
    marked(whole, marks),
    marks.length === 0 && el("p", { class: "fine" }, say("No entity was found.")),
    lost.length + gained > 0 && el("p", { class: "changes" }, say("Entities lost: {}, new: {}.", lost.length, gained)),
  ];
}

function drawAnswer({ before, after, texts }) {
  const shown = (one) => one.answer ?? say("no answer");
  const marks = [];
  const now = after ?? before;
  const has = (one) => one && typeof one.start === "number" && typeof one.end === "number" && one.answer;
  if (has(now)) marks.push({ ...now, make: (text) => el("mark", { class: after && !(has(before) && sameSpan(before, after)) ? "answer gained" : "answer" }, text) });
  if (after && has(before) && !(has(after) && overlaps(before, after))) marks.push({ ...before, make: (text) => el("mark", { class: "answer lost" }, text) });
  return [verdict(shown(before), after && shown(after)),
    ...bars([{ label: say("score"), before: before.score, after: after ? after.score : null }]),
    marked(texts.context, marks)];
}

// Words that both texts share, in order (longest common subsequence); texts here are short.
function compareWords(before, after) {
  const split = (text) => text.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|\S+|\s+/gu) ?? [];
  const [a, b] = [split(before).slice(0, 600), split(after).slice(0, 600)];
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { parts.push(a[i]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) { parts.push(el("del", {}, a[i])); i += 1; }
    else { parts.push(el("ins", {}, b[j])); j += 1; }
  }
  return parts;
}

export function drawText(before, after) {
  if (after === null || after === before) return user("p", { class: "written" }, before, before || el("em", { class: "quiet" }, say("(empty)")));
  return user("p", { class: "written" }, before, ...compareWords(before, after));
}

const written = (one) => one.target ?? one.text ?? "";

function drawWritten({ before, after, next }) {
  const parts = [drawText(written(before), after ? written(after) : null)];
  if (next) {
    parts.push(el("h3", {}, say("The next token")), ...bars(next.map((one) => ({ label: one.text.replace(/\n/g, "⏎") || "␣", before: one.before, after: one.after }))));
  }
  return parts;
}

function drawCandidates({ before, after }) {
  return before.candidates.map((several, place) => {
    const later = after && new Map(after.candidates[place].map((one) => [one.text, one.score]));
    const known = new Set(several.map((one) => one.text));
    const fresh = after ? after.candidates[place].filter((one) => !known.has(one.text)).map((one) => ({ label: one.text, before: 0, after: one.score })) : [];
    const rows = [...several.map((one) => ({ label: one.text, before: one.score, after: later ? later.get(one.text) ?? 0 : null })), ...fresh];
    return el("div", {}, before.candidates.length > 1 && el("h3", {}, say("Gap {}", place + 1)), ...bars(rows));
  });
}

function drawVector({ before }) {
  const vector = before.vector ?? [];
  return [el("p", { class: "verdict" }, say("A vector of {} numbers", vector.length)),
    el("p", { class: "fine mono" }, vector.slice(0, 12).map((value) => value.toFixed(3)).join("  "), " …")];
}

const DRAWERS = {
  ner: drawEntities, classify: drawClasses, match: drawClasses, answer: drawAnswer, translate: drawWritten, summarize: drawWritten,
  denoise: drawWritten, generate: drawWritten, mask: drawCandidates, embed: drawVector,
};

// Of an input that did not fit the model in one piece, or had unknown tokens.
function input_info({ input_info: given }) {
  if (!given) return null;
  const parts = [given.windows > 1 && say("read in {} windows", given.windows), given.truncated > 0 && say("{} tokens were left out", given.truncated),
    given.unknown > 0 && say("{} unknown tokens", given.unknown)].filter(Boolean);
  return parts.length ? el("p", { class: "fine" }, parts.join(" · ")) : null;
}

export function drawPrediction(model, texts, { before, after = null, next = null }) {
  const same = after && JSON.stringify(after) === JSON.stringify(before) && !next;
  const given = { before, after, next, texts, text: texts.text ?? "", labels: model.labels };
  return el("div", { class: after ? "prediction compared" : "prediction" }, DRAWERS[model.task](given), input_info(after ?? before),
    same && el("p", { class: "fine" }, say("Nothing changed.")));
}
