// Errors, told kindly: what happened in a few words, and what the server says of it.

import { el } from "../views/dom.js";
import { say } from "../views/say.js";

export function failIn(place, error) {
  if (error.name === "AbortError") return; // a newer request took its place
  const kind = `problem: ${error.code ?? "unknown"}`;
  const short = say(kind) === kind ? say("That did not work.") : say(kind);
  place.replaceChildren(el("div", { class: "problem", role: "alert" }, el("strong", {}, short), " ", error.message));
}
