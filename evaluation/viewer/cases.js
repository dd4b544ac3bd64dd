// The list of cases: sorted by a metric, filtered by text, moved through by keys.

import { byId, element } from "./notices.js";

const MEAN = "mean of all teams";
const LOWEST = "lowest of all teams";

// JSON has no infinity, which a missed structure's distance is.
const numberOf = (value) => (value === "inf" ? Infinity : value);

export class CaseList {
  #data;
  #open;
  #ascending = true;
  #shown = [];
  #current = null;

  /** `open(case)` is called when a person chooses a case. */
  constructor(data, open) {
    this.#data = data;
    this.#open = open;
    byId("sort").append(new Option("Case", ""), ...data.metrics.map(({ key, title }) => new Option(title, key)));
    const teams = data.teams.map(({ name }) => new Option(name, `team:${name}`));
    byId("sort-team").append(new Option(MEAN, MEAN), new Option(LOWEST, LOWEST), ...teams);
    // The cases worth a look come first: those with the worst values.
    byId("sort").addEventListener("change", () => this.#show(this.#metric()?.higher_is_better ?? !this.#metric()));
    byId("direction").addEventListener("click", () => this.#show(!this.#ascending));
    byId("sort-team").addEventListener("change", () => this.#show());
    byId("filter").addEventListener("input", () => this.#show());
    this.#show();
  }

  #metric() {
    return this.#data.metrics.find(({ key }) => key === byId("sort").value);
  }

  /** The value a case is sorted by; null without one. */
  #valueOf(one, metric) {
    const values = one.values[metric.key] ?? {};
    const team = byId("sort-team").value;
    if ("" in values) return values[""];
    if (team.startsWith("team:")) return numberOf(values[team.slice(5)] ?? null);
    if (Object.values(values).every((value) => value === null)) return null;
    // A team without a value rightly marks nothing: a median or mean of the others alone would hide that it is right.
    const present = Object.values(values).map((value) => numberOf(value) ?? (metric.higher_is_better ? 1 : 0));
    return team === LOWEST ? Math.min(...present) : present.reduce((sum, value) => sum + value, 0) / present.length;
  }

  #show(ascending = this.#ascending) {
    this.#ascending = ascending;
    const metric = this.#metric();
    byId("sort-team").disabled = !metric || this.#data.cases.some(({ values }) => "" in (values[metric.key] ?? {}));
    const rows = this.#data.cases.filter((one) => this.#matches(one)).map((one) => ({ one, value: metric ? this.#valueOf(one, metric) : null }));
    if (metric) rows.sort((a, b) => this.#compare(a.value, b.value));
    else if (!ascending) rows.reverse();
    this.#shown = rows.map(({ one }) => one.case);
    byId("cases").replaceChildren(...rows.map((row, place) => this.#item(row, place, metric)));
    byId("cases").scrollTop = 0;
    Object.assign(byId("direction"), { textContent: ascending ? "↑" : "↓", ariaLabel: `Sort direction: ${ascending ? "ascending" : "descending"}` });
    byId("count").textContent = `${rows.length} of ${this.#data.cases.length} cases`;
    this.select(this.#current);
  }

  // Cases without a value come last in both directions.
  #compare(a, b) {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (a === b) return 0; // also two infinite values
    return this.#ascending ? a - b : b - a;
  }

  #matches(one) {
    const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${one.case} ${one.centre ?? ""} ${one.facts ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  #item({ one, value }, place, metric) {
    const figure = !metric ? (one.centre ?? "") : value === null ? "–" : Number.isFinite(value) ? value.toFixed(metric.digits) : "∞";
    const content = [element("span", one.case), element("span", figure, { className: "figure" })];
    return element("li", content, { role: "option", id: `case-${place}`, onclick: () => this.#open(one.case) });
  }

  /** Mark the open case and scroll it into view. */
  select(name) {
    this.#current = name;
    const place = this.#shown.indexOf(name);
    [...byId("cases").children].forEach((item, number) => (item.ariaSelected = String(number === place)));
    byId("cases").setAttribute("aria-activedescendant", place < 0 ? "" : `case-${place}`);
    byId("cases").children[place]?.scrollIntoView({ block: "nearest" });
  }

  /** Open the case `step` places further in the list as it is shown. */
  move(step) {
    const place = this.#shown.indexOf(this.#current);
    const next = place < 0 ? 0 : Math.min(this.#shown.length - 1, Math.max(0, place + step));
    if (next !== place && this.#shown.length) this.#open(this.#shown[next]);
  }

  get first() {
    return this.#shown[0] ?? null;
  }

  /** The case after the open one in the list as it is shown; null at its end. */
  get next() {
    return this.#shown[this.#shown.indexOf(this.#current) + 1] ?? null;
  }
}
