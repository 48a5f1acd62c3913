// What the views say, in the language of the page: English, unless a page brings a table of other words.

const table = new Map();

export function speak(words) {
  table.clear();
  for (const [english, other] of Object.entries(words)) table.set(english, other);
}

// say("layer {}", 3): the sentence in the page's language, with the values in their places.
export function say(english, ...values) {
  const parts = (table.get(english) ?? english ?? "").split("{}");
  return parts.map((part, place) => (place ? `${values[place - 1] ?? ""}${part}` : part)).join("");
}
