// Where it all came from: the command, the machine, the files' fingerprints, the run file.

import { el, user } from "./dom.js";

export function originView({ command, machine, digests, run_file: runFile }) {
  return el("div", {},
    el("dl", { class: "origin" },
      command && [el("dt", {}, "Command"), el("dd", {}, user("code", {}, command))],
      machine && [el("dt", {}, "Machine"), el("dd", {}, user("span", {}, machine))]),
    digests.length > 0 && el("div", {}, el("h3", {}, "Files"),
      el("ul", { class: "digests" }, digests.map((digest) => el("li", {},
        user("span", {}, digest.name), digest.note && user("span", { class: "quiet" }, digest.note),
        el("code", { class: "sha" }, `sha256 ${digest.sha256}`))))),
    runFile && el("div", {}, el("h3", {}, "Run file"), user("pre", { tabindex: "0" }, runFile)));
}
