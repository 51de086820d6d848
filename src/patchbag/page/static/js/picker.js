// The classes to choose from: a key, a colour, a name, and a bar where the model has a probability. Type to find or make.

import { h, percent, say } from "./dom.js";
import { dot } from "./tile.js";
import { classes, on } from "./store.js";

export class Picker {
  /** `pick(choice)`: id of a class, or the name of a new one; `counts`: show how many images each class has. */
  constructor({ pick, label, counts = false }) {
    Object.assign(this, { pick, counts });
    this.chances = null;
    this.rows = new Map();
    this.field = h("input", {
      type: "text",
      class: "field",
      placeholder: "Find or add a class …",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: 200,
      "aria-label": `${label}: type to find a class or to make a new one`,
      oninput: () => this.render(),
      onkeydown: (event) => this._typed(event),
    });
    this.list = h("ul", { class: "picker-list", "aria-label": label });
    this.fresh = h("button", { type: "button", class: "pick fresh", hidden: true, onclick: () => this._take(this.field.value.trim()) });
    this.element = h("div", { class: "picker" }, this.field, this.list, this.fresh);
    this.stop = on("classes state", () => this.render());
    this.render();
  }

  /** Probabilities [{label, p}] to show as bars, best first; null for none. */
  setChances(chances) {
    this.chances = chances ? new Map(chances.map(({ label, p }) => [label, p])) : null;
    this.render();
  }

  /** Mark the class that was chosen, for a moment. */
  flash(id) {
    this.rows.forEach((row, key) => row.classList.toggle("taken", key === id));
  }

  clear() {
    this.field.value = "";
    this.render();
  }

  _matching() {
    const text = this.field.value.trim().toLowerCase();
    const all = classes().filter((one) => one.name.toLowerCase().includes(text));
    const first = (one) => (text && one.name.toLowerCase().startsWith(text) ? 0 : 1);
    if (this.chances) all.sort((a, b) => (this.chances.get(b.id) ?? 0) - (this.chances.get(a.id) ?? 0));
    return all.sort((a, b) => first(a) - first(b));
  }

  render() {
    const shown = this._matching();
    const order = shown.map((one) => this._row(one));
    if (order.some((row, i) => this.list.children[i] !== row.parentElement) || this.list.children.length !== order.length) {
      this.list.replaceChildren(...order.map((row) => row.parentElement));
    }
    const text = this.field.value.trim();
    const known = classes().some((one) => one.name === text);
    this.fresh.hidden = !text || known;
    this.fresh.replaceChildren(h("kbd", {}, shown.length && text ? "⇧↵" : "↵"), h("span", {}, "New class “", h("b", {}, text), "”"));
  }

  _row(one) {
    let row = this.rows.get(one.id);
    if (!row) {
      row = h("button", { type: "button", class: "pick", onclick: () => this._take(one.id) });
      h("li", {}, row);
      this.rows.set(one.id, row);
    }
    const p = this.chances?.get(one.id) ?? null;
    const amount = this.chances ? percent(p ?? 0) : this.counts ? one.count.toLocaleString("en") : "";
    const text = JSON.stringify([one.key, one.color, one.name, amount]);
    if (row.dataset.text !== text) {
      row.dataset.text = text;
      const key = h("kbd", { class: one.key ? "" : "none" }, one.key ?? "");
      row.replaceChildren(h("span", { class: "pick-bar", style: { background: one.color } }), key, dot(one.color), h("span", { class: "cut" }, one.name), h("small", {}, amount));
    }
    row.firstChild.style.transform = `scaleX(${this.chances && p >= 0.005 ? p : 0})`;
    return row;
  }

  _take(choice) {
    if (choice === "" || choice === undefined) return;
    this.clear();
    this.pick(choice);
  }

  _typed(event) {
    const shown = this._matching();
    const text = this.field.value.trim();
    if (event.key === "Enter" && text) {
      const exact = shown.find((one) => one.name.toLowerCase() === text.toLowerCase());
      this._take(event.shiftKey || !shown.length ? text : (exact ?? shown[0]).id);
    } else if (event.key === "Escape") {
      this.clear();
      this.field.blur();
    } else if (event.key === "ArrowDown") this.list.querySelector("button")?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") say("");
  }
}
