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
    this.list = byId("cases");
    this.sort = byId("sort");
    this.team = byId("sort-team");
    this.direction = byId("direction");
    this.filter = byId("filter");
    this.sort.append(new Option("Case", ""), ...data.metrics.map(({ key, title }) => new Option(title, key)));
    const teams = data.teams.map(({ name }) => new Option(name, `team:${name}`));
    this.team.append(new Option(MEAN, MEAN), new Option(LOWEST, LOWEST), ...teams);
    this.#listen();
    this.#show();
  }

  #listen() {
    this.sort.addEventListener("change", () => {
      // The cases worth a look come first: those with the worst values.
      this.#ascending = !this.#metric() || this.#metric().higher_is_better;
      this.#show();
    });
    this.team.addEventListener("change", () => this.#show());
    this.direction.addEventListener("click", () => {
      this.#ascending = !this.#ascending;
      this.#show();
    });
    this.filter.addEventListener("input", () => this.#show());
    this.list.addEventListener("click", ({ target }) => {
      const item = target.closest("[role=option]");
      if (item) this.#open(this.#shown[Number(item.dataset.place)].case);
    });
  }

  #metric() {
    return this.#data.metrics.find(({ key }) => key === this.sort.value);
  }

  /** The value a case is sorted by; null without one. */
  #valueOf(one, metric) {
    const values = one.values[metric.key] ?? {};
    if ("" in values) return values[""];
    if (this.team.value.startsWith("team:")) return numberOf(values[this.team.value.slice(5)] ?? null);
    if (Object.values(values).every((value) => value === null)) return null;
    // A team without a value rightly marks nothing: a median or mean of the others alone would hide that it is right.
    const present = Object.values(values).map((value) => numberOf(value) ?? (metric.higher_is_better ? 1 : 0));
    return this.team.value === LOWEST ? Math.min(...present) : present.reduce((sum, value) => sum + value, 0) / present.length;
  }

  #show() {
    const metric = this.#metric();
    this.team.disabled = !metric || this.#data.cases.some(({ values }) => "" in (values[metric.key] ?? {}));
    const rows = this.#data.cases.filter((one) => this.#matches(one)).map((one) => ({ one, value: metric ? this.#valueOf(one, metric) : null }));
    if (metric) rows.sort((a, b) => this.#compare(a.value, b.value));
    else if (!this.#ascending) rows.reverse();
    this.#shown = rows.map(({ one }) => one);
    this.list.replaceChildren(...rows.map((row, place) => this.#item(row, place, metric)));
    this.list.scrollTop = 0;
    this.direction.textContent = this.#ascending ? "↑" : "↓";
    this.direction.setAttribute("aria-label", `Sort direction: ${this.#ascending ? "ascending" : "descending"}`);
    byId("count").textContent = `${rows.length} of ${this.#data.cases.length} cases`;
    this.#mark();
  }

  // Cases without a value come last in both directions.
  #compare(a, b) {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (a === b) return 0; // also two infinite values
    return this.#ascending ? a - b : b - a;
  }

  #matches(one) {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = `${one.case} ${one.centre ?? ""} ${one.facts ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  #item({ one, value }, place, metric) {
    const figure = !metric ? (one.centre ?? "") : value === null ? "–" : Number.isFinite(value) ? value.toFixed(metric.digits) : "∞";
    const item = element("li", [element("span", one.case), element("span", figure, "figure")]);
    item.setAttribute("role", "option");
    item.id = `case-${place}`;
    item.dataset.place = place;
    return item;
  }

  /** Mark the open case and scroll it into view. */
  select(name) {
    this.#current = name;
    this.#mark();
  }

  #mark() {
    const place = this.#shown.findIndex((one) => one.case === this.#current);
    for (const item of this.list.children) item.setAttribute("aria-selected", String(Number(item.dataset.place) === place));
    if (place < 0) return this.list.removeAttribute("aria-activedescendant");
    this.list.setAttribute("aria-activedescendant", `case-${place}`);
    this.list.children[place].scrollIntoView({ block: "nearest" });
  }

  /** Open the case `step` places further in the list as it is shown. */
  move(step) {
    if (this.#shown.length === 0) return;
    const place = this.#shown.findIndex((one) => one.case === this.#current);
    const next = place < 0 ? 0 : Math.min(this.#shown.length - 1, Math.max(0, place + step));
    if (next !== place) this.#open(this.#shown[next].case);
  }

  get first() {
    return this.#shown[0]?.case ?? null;
  }

  /** The case after the open one in the list as it is shown; null at its end. */
  get next() {
    const place = this.#shown.findIndex((one) => one.case === this.#current);
    return this.#shown[place + 1]?.case ?? null;
  }
}
