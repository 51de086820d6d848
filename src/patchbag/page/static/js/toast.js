// Messages in the corner, questions before what is hard to take back, and a question for one line of text.

import { button, h, say, sentence } from "./dom.js";
import { emit } from "./store.js";

const SHOWN = 5000;

/** A short message; with `undo` it has the button. */
export function toast(text, { undo = false, kind = "" } = {}) {
  const box = document.querySelector(".toasts");
  const card = h("div", { class: `toast ${kind}` }, h("span", {}, text));
  if (undo) card.append(button("Undo", () => (card.remove(), emit("undo")), { kind: "link" }));
  card.append(button("", () => card.remove(), { name: "close", kind: "quiet small", label: "Close message" }));
  box.append(card);
  while (box.children.length > 3) box.firstElementChild.remove();
  say(text);
  setTimeout(() => card.remove(), kind === "bad" ? 2 * SHOWN : SHOWN);
}

export function fail(error) {
  if (error.name === "AbortError") return;
  toast(sentence(error.message), { kind: "bad" });
}

/** What the work gives; null where it fails, which the person is told. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    fail(error);
    return null;
  }
}

function show(title, content, actions) {
  const heading = h("h2", { id: "dialog-title" }, title);
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" }, heading, content, actions);
  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before instanceof HTMLElement) before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** A panel with a closing button. */
export function panel(title, content) {
  const dialog = show(title, content, h("div", { class: "row end" }, button("Close", () => dialog.close(), { kind: "primary" })));
  return dialog;
}

/** true when the person agrees. */
export function confirm(title, text, action) {
  return new Promise((resolve) => {
    let agreed = false;
    const yes = button(action, () => ((agreed = true), dialog.close()), { kind: "primary" });
    const no = button("Cancel", () => dialog.close());
    const dialog = show(title, h("p", {}, text), h("div", { class: "row end" }, no, yes));
    dialog.addEventListener("close", () => resolve(agreed));
    yes.focus();
  });
}

/** A line of text, or null. */
export function question(title, { value = "", action = "OK", hint = "" } = {}) {
  return new Promise((resolve) => {
    let given = null;
    const field = h("input", { type: "text", class: "field", value, "aria-label": title, maxlength: 200 });
    const take = () => ((given = field.value.trim() || null), dialog.close());
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault(); // the same key would press the button that gets the focus back
      take();
    });
    const actions = h("div", { class: "row end" }, button("Cancel", () => dialog.close()), button(action, take, { kind: "primary" }));
    const dialog = show(title, h("div", { class: "stack" }, hint && h("p", {}, hint), field), actions);
    dialog.addEventListener("close", () => resolve(given));
    field.select();
  });
}
