// Precision, recall, F1 and support by class; a click on a heading sorts, a third click gives the first order back.

import { el, label, choice, folded, SHOWN } from "./dom.js";
import { fixed, count, percent } from "./format.js";
import { range, between } from "./scores.js";

const HEADINGS = { tags: "By tag", entities: "By entity", classes: "By class", labels: "By label" };
const ONE = { tags: "tag", entities: "type", classes: "class", labels: "label" };
const MANY = { tags: "tags", entities: "types", classes: "classes", labels: "labels" };
const letters = new Intl.Collator(["en", "zh"], { numeric: true });

// minor columns are left out on a phone
const looks = (column) => (column.left ? "left" : column.minor ? "minor" : null);

// columns: {name, value(row), cell(row), left, minor, first: "ascending" | "descending"}; order: [column, direction] or null.
export function sortable({ columns, rows, foot = [], order = null, note, what = "rows" }) {
  const body = el("tbody", {});
  const heads = columns.map((column) => {
    const button = el("button", { type: "button" }, column.name);
    const head = el("th", { scope: "col", class: looks(column), "aria-sort": "none" }, button);
    button.addEventListener("click", () => {
      const first = column.first ?? "descending";
      const second = first === "descending" ? "ascending" : "descending";
      const now = order && order[0] === column ? order[1] : null;
      order = now === null ? [column, first] : now === first ? [column, second] : null;
      draw();
    });
    return head;
  });
  const cells = (row) => columns.map((column, place) =>
    el(place ? "td" : "th", { scope: place ? null : "row", class: looks(column) }, column.cell(row)));
  const drawn = new Map([...rows, ...foot].map((row) => [row, el("tr", {}, cells(row))]));

  function draw() {
    const sorted = [...rows];
    if (order) {
      const [column, direction] = order;
      const sign = direction === "ascending" ? 1 : -1;
      const by = (a, b) => (typeof a === "string" ? letters.compare(a, b) : (a ?? -Infinity) - (b ?? -Infinity));
      sorted.sort((a, b) => sign * by(column.value(a), column.value(b)));
    }
    columns.forEach((column, place) => {
      heads[place].setAttribute("aria-sort", order && order[0] === column ? order[1] : "none");
    });
    body.replaceChildren(...sorted.map((row) => drawn.get(row)));
  }

  draw();
  const table = el("table", { class: "sortable" },
    el("thead", {}, el("tr", {}, heads)), body,
    foot.length > 0 && el("tfoot", {}, foot.map((row) => drawn.get(row))));
  const [wide, ...more] = folded(el("div", { class: "wide" }, table), rows.length, what);
  return el("div", {}, wide, note && el("p", { class: "fine" }, note), more);
}

// One scale for all intervals of a table, in tenths; null where there are none.
function endsOf(rows) {
  const known = rows.map((row) => row.interval).filter((interval) => interval && interval.low !== null);
  if (!known.length) return null;
  const low = Math.floor(Math.min(...known.map((interval) => interval.low)) * 10) / 10;
  const high = Math.ceil(Math.max(...known.map((interval) => interval.high)) * 10) / 10;
  return Object.assign(low < high ? [low, high] : [0, 1], { level: known[0].level });
}

function tableOf(table) {
  const number = (name, shown) => ({ name: shown, value: (row) => row[name], cell: (row) => fixed(row[name]) });
  const columns = [
    { name: ONE[table.title] ?? "name", value: (row) => row.name, cell: (row) => label({}, row.name), left: true, first: "ascending" },
    number("precision", "precision"), number("recall", "recall"), number("f1", "F1"),
  ];
  const ends = endsOf([...table.rows, ...table.averages]);
  if (ends) {
    columns.push({
      name: `F1, ${percent(ends.level, 0)} interval`,
      minor: true,
      value: (row) => row.interval && row.interval.high - row.interval.low,
      cell: (row) => row.interval && row.interval.low !== null && el("span", { class: "spread" },
        range(row.f1, row.interval, ends, 96), el("span", { class: "quiet" }, between(row.interval, "share"))),
    });
  }
  columns.push({ name: "support", value: (row) => row.support, cell: (row) => count(row.support) });
  const many = table.rows.length > SHOWN;
  const scale = ends && `Bars run from ${fixed(ends[0], 1)} to ${fixed(ends[1], 1)}.`;
  return sortable({
    columns, note: scale, rows: table.rows, foot: table.averages, what: MANY[table.title] ?? "rows",
    order: many ? [columns[3], "ascending"] : null, // the weakest are what one looks for
  });
}

// Tables of one title (entities by two conventions) share a place and a choice.
export function tablesView(tables) {
  const titles = [...new Set(tables.map((table) => table.title))];
  return titles.map((title) => {
    const same = tables.filter((table) => table.title === title);
    const place = el("div", {});
    const note = el("p", { class: "note" });
    const put = (table) => {
      place.replaceChildren(tableOf(table));
      note.textContent = table.note ? `Counted ${table.note}.` : "";
    };
    put(same[0]);
    const names = same.map((table, at) => [table, table.note.split(/[,:]/)[0] || String(at + 1)]);
    return el("section", { class: "table", "data-table": title },
      el("div", { class: "line" }, el("h3", {}, HEADINGS[title] ?? title),
        same.length > 1 && choice("Counted by", names, same[0], put)),
      note, place);
  });
}
