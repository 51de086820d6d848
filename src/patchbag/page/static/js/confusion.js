// The confusion matrix of left-out predictions, as a table that is coloured.

import { h } from "./dom.js";
import { nameOf } from "./store.js";

/** Rows are labels, columns what the model expects; a cell is the share of the row in percent. */
export function confusion({ matrix, classes }) {
  if (!classes?.length || classes.length > 40) return h("p", { class: "soft" }, classes?.length ? `${classes.length} classes: the pairs are below.` : "");
  const head = h("tr", {}, h("td"), classes.map((id) => h("th", { scope: "col" }, h("span", {}, nameOf(id)))));
  const rows = matrix.map((row, i) => {
    const total = Math.max(1, row.reduce((a, b) => a + b, 0));
    const cells = row.map((n, j) => {
      const share = n / total;
      const cell = h("td", { class: i === j ? "right" : "wrong", title: `${nameOf(classes[i])} → ${nameOf(classes[j])}: ${n}` }, n ? Math.round(100 * share) : "");
      cell.style.setProperty("--share", n ? `${Math.round(100 * share ** 0.6)}%` : "0%");
      if (share > 0.35) cell.classList.add("strong");
      return cell;
    });
    return h("tr", {}, h("th", { scope: "row" }, nameOf(classes[i])), cells);
  });
  return h("section", { class: "card" }, h("h2", {}, "Confusion"), h("p", { class: "soft" }, "Rows are labels, columns what the model expects without that label; percent of the row."), h("div", { class: "scroll" }, h("table", { class: "confusion" }, h("thead", {}, head), h("tbody", {}, rows))));
}
