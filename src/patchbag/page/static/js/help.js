// What the keys do.

import { h } from "./dom.js";
import { panel } from "./toast.js";

const KEYS = [
  ["Everywhere", [["Ctrl Z · Ctrl ⇧ Z", "undo, redo"], ["Ctrl V", "search for a pasted picture"], ["?", "this page"]]],
  [
    "Gallery",
    [
      ["← → ↑ ↓ · Home · End", "move"],
      ["⇧ with these", "select on the way"],
      ["Space", "select or leave out"],
      ["Ctrl A · Esc", "all, none"],
      ["1 … 9, or a class's key", "label the selection"],
      ["C", "type a class"],
      ["Delete", "take the label away"],
      ["Enter", "look closely, and why"],
    ],
  ],
  [
    "Ask me",
    [
      ["1 … 9, or a class's key", "answer"],
      ["any letter", "type the class; ↵ takes the first, ⇧↵ makes a new one"],
      ["Space", "set aside"],
      ["Backspace", "take the last answer back"],
      ["W", "why: which patches spoke"],
    ],
  ],
  ["Image", [["H", "heat map on and off"], ["arrows in the picture", "move a rectangle, with ⇧ resize it; Enter takes it"], ["Esc", "back"]]],
  ["Map", [["drag", "lasso"], ["wheel, + −", "zoom"], ["arrows, Enter", "move the circle, select what is in it"]]],
];

export function showHelp() {
  const parts = KEYS.map(([title, rows]) =>
    h("section", {}, h("h3", {}, title), h("dl", {}, rows.map(([keys, text]) => [h("dt", {}, keys), h("dd", {}, text)]))),
  );
  panel("Keys", h("div", { class: "keys" }, parts));
}
