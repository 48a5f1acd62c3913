// The whole page, from the data inside it.

import { el, user } from "./dom.js";
import { scoresView } from "./scores.js";
import { tablesView } from "./tables.js";
import { confusionView } from "./confusion.js";
import { curvesView } from "./curves.js";
import { mistakesView } from "./mistakes.js";
import { samplesView } from "./samples.js";
import { calibrationView } from "./calibration.js";
import { lengthsView } from "./lengths.js";
import { headsView } from "./heads.js";
import { originView } from "./provenance.js";

const facts = JSON.parse(document.getElementById("facts").textContent);

// id, heading, what it draws: null where there is nothing to draw.
const SECTIONS = [
  ["scores", "Scores", facts.scores.length ? () => scoresView(facts.scores) : null],
  ["classes", "In detail", facts.tables.length ? () => tablesView(facts.tables) : null],
  ["confusion", "Confusion", facts.confusion && facts.confusion.labels.length ? () => confusionView(facts.confusion) : null],
  ["mistakes", "Worst mistakes", facts.mistakes ? () => mistakesView(facts.mistakes) : null],
  ["samples", "What it writes", facts.samples.length ? () => samplesView(facts.samples) : null],
  ["calibration", "Calibration", facts.calibration.some((bin) => bin.count) ? () => calibrationView(facts.calibration) : null],
  ["training", "Training", facts.curves.length ? () => curvesView(facts.curves, facts.best_step) : null],
  ["lengths", "Lengths and windows", facts.lengths ? () => lengthsView(facts.lengths) : null],
  ["heads", "What the heads do", facts.heads.length ? () => headsView(facts.heads) : null],
  ["origin", "Origin", () => originView(facts)],
].filter(([, , draw]) => draw);

const dot = (parts) => parts.filter(Boolean).flatMap((part, place) => (place ? [" · ", part] : [part]));

const head = el("header", { class: "head" },
  el("p", { class: "kind" }, dot([facts.task, facts.date])),
  user("h1", {}, facts.title),
  facts.scored_on && el("p", { class: "note" }, "Scored on ", user("span", {}, facts.scored_on)));

const nav = el("nav", { "aria-label": "Sections" },
  SECTIONS.map(([id, heading]) => el("a", { href: `#${id}` }, heading)));

const warnings = facts.warnings.length > 0 && el("aside", { class: "warnings", "aria-label": "Warnings" },
  el("h2", {}, facts.warnings.length === 1 ? "A warning from the data check" : `${facts.warnings.length} warnings from the data check`),
  el("ul", {}, facts.warnings.map((warning) => user("li", {}, warning))));

// A part that cannot be drawn must not take the others with it.
function drawn([id, heading, draw]) {
  let content;
  try {
    content = draw();
  } catch (error) {
    console.error(error);
    content = el("p", { class: "alarm" }, `This part could not be drawn: ${error.message}`);
  }
  return el("section", { id }, el("h2", {}, heading), content);
}

document.getElementById("report").append(...[head, nav, warnings].filter(Boolean), ...SECTIONS.map(drawn));
