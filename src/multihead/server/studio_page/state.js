// What a link to this page says: model, texts, heads that are off, the head that is shown. It stands behind the #, which
// browsers do not send to any server.

const TEXT_LIMIT = 30_000; // characters of a text that a link carries

export const state = {
  model: null, // its name
  input: {}, // by column
  second: null, // of a second input to compare with
  off: new Set(), // addresses of heads
  covered: new Set(), // tokens that are read as the mask token
  head: null, // the address of the one that is large
  view: null, // encoder.self, decoder.cross …
  mode: null, // lines, across, text, map, rollout
  window: 0,
  side: 0,
  language: null,
};

export function readLink() {
  const given = new URLSearchParams(window.location.hash.slice(1));
  const list = (name) => (given.get(name) ?? "").split(",").filter(Boolean);
  const texts = (name) => {
    try {
      const found = JSON.parse(given.get(name));
      const entries = Object.entries(found ?? {}).filter(([, text]) => typeof text === "string");
      return found && entries.length ? Object.fromEntries(entries) : null;
    } catch {
      return null; // a link that somebody cut short
    }
  };
  state.model = given.get("model");
  state.input = texts("input") ?? {};
  state.second = texts("second");
  state.off = new Set(list("off"));
  state.covered = new Set(list("cover").map(Number).filter(Number.isInteger));
  for (const name of ["head", "view", "mode"]) state[name] = given.get(name);
  for (const name of ["window", "side"]) state[name] = Math.max(0, Number.parseInt(given.get(name) ?? "0", 10) || 0);
  state.language = given.get("language") ?? state.language;
}

export function writeLink() {
  const link = new URLSearchParams();
  const put = (name, value) => { if (value) link.set(name, value); };
  const texts = (values) => values && Object.values(values).some(Boolean) && JSON.stringify(values);
  put("model", state.model);
  const [first, second] = [texts(state.input), texts(state.second)];
  if (!first || first.length <= TEXT_LIMIT) put("input", first);
  if (!second || second.length <= TEXT_LIMIT) put("second", second);
  put("off", [...state.off].join(","));
  put("cover", [...state.covered].join(","));
  for (const name of ["head", "view", "mode", "language"]) put(name, state[name]);
  for (const name of ["window", "side"]) put(name, state[name] ? String(state[name]) : "");
  window.history.replaceState(null, "", `#${link}`);
}
