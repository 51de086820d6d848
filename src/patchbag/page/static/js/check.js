// What may be wrong: labels the model doubts, classes that are confused, copies, images that stand alone, disagreements.

import { confirm, keepOne, label, skip } from "./actions.js";
import { get, post } from "./api.js";
import { confusion } from "./confusion.js";
import { button, h, percent, plural, sentence } from "./dom.js";
import { classOf, nameOf, on } from "./store.js";
import { dot, refreshTiles, thumbLink } from "./tile.js";
import { attempt, fail } from "./toast.js";

const TABS = [
  ["errors", "Labels to look at", errors],
  ["confusions", "Confused classes", confusions],
  ["duplicates", "Near-duplicates", duplicates],
  ["lonely", "Stand alone", lonely],
  ["disagreements", "People disagree", disagreements],
];

export async function mount(root, address) {
  let current = null;
  const content = h("div", { class: "check-content", role: "tabpanel", id: "check-panel", tabindex: "0" });
  const tabs = TABS.map(([name, title]) =>
    h("button", { type: "button", role: "tab", id: `check-${name}`, "aria-controls": "check-panel", class: "segment", onclick: () => (location.hash = `#/check/${name}`) }, title),
  );
  const list = h("div", { class: "segments", role: "tablist", "aria-label": "What to check" }, tabs);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = tabs.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const to = tabs[(at + step + tabs.length) % tabs.length];
    to.focus();
    to.click();
  });
  root.append(h("div", { class: "page" }, h("h1", {}, "Check"), list, content));
  const stops = [on("details classes", () => refreshTiles(content)), on("stepped", () => draw()), on("progress", ({ stage }) => stage === "duplicates" && current === "duplicates" && draw())];

  async function draw() {
    const mine = current;
    try {
      const made = await TABS.find(([name]) => name === mine)[2](draw);
      if (mine !== current) return;
      content.replaceChildren(...made);
    } catch (error) {
      if (error.status === 503 || error.status === 409) content.replaceChildren(note(sentence(error.message)));
      else fail(error);
    }
  }

  function update({ rest }) {
    current = TABS.some(([name]) => name === rest[0]) ? rest[0] : "errors";
    TABS.forEach(([name], i) => {
      tabs[i].setAttribute("aria-selected", String(name === current));
      tabs[i].tabIndex = name === current ? 0 : -1;
      if (name === current) tabs[i].scrollIntoView({ block: "nearest", inline: "nearest" });
    });
    content.setAttribute("aria-labelledby", `check-${current}`);
    draw();
    return true;
  }
  update(address);
  return { unmount: () => stops.forEach((stop) => stop()), update };
}

const note = (text) => h("p", { class: "hint" }, text);
const NO_LABELS = "There are no labels yet. Answer some questions in “Ask me”, or label images in the gallery; then this finds what looks wrong.";
const chip = (id) => h("span", { class: "chip" }, dot(classOf(id)?.color), h("span", { class: "cut" }, nameOf(id)));

/** A card that goes when it was dealt with, and hands the focus on. */
function card(id, lines, actions) {
  const box = h("article", { class: "card check-card" });
  const done = () => {
    const next = box.nextElementSibling ?? box.previousElementSibling;
    box.remove();
    next?.querySelector("button")?.focus();
  };
  const buttons = actions.map(([text, work, kind = "small"]) => button(text, async () => ((await work()) === null ? null : done()), { kind }));
  box.append(thumbLink(id, []), h("div", { class: "stack tight" }, lines, h("div", { class: "row wrap" }, buttons)));
  return box;
}

async function errors() {
  const { items, labels } = await get("/check/errors", { limit: 100 });
  if (!items.length) return [note(labels ? `The model, trained without each label in turn, agrees with all ${labels} labels.` : NO_LABELS)];
  const cards = items.map((one) =>
    card(
      one.id,
      [h("p", {}, "Label ", chip(one.label), h("small", {}, ` ${percent(one.p_label)}`)), h("p", {}, "Model ", chip(one.predicted), h("small", {}, ` ${percent(one.p_predicted)}`))],
      [
        [`Change to ${nameOf(one.predicted)}`, () => label([one.id], one.predicted), "primary small"],
        [`Keep ${nameOf(one.label)}`, () => confirm([one.id])],
      ],
    ),
  );
  return [h("p", { class: "soft" }, `Of ${plural(labels, "label")}, those that a model trained without them disagrees with most.`), h("div", { class: "cards check-cards" }, cards)];
}

async function confusions() {
  const found = await get("/check/confusions", { limit: 20 });
  if (!found.labels) return [note(NO_LABELS)];
  const pairs = found.pairs.map(({ a, b, count, share, ids }) =>
    h("article", { class: "card" }, h("p", {}, chip(a), " and ", chip(b), h("span", { class: "soft" }, ` ${plural(count, "image")} taken for the other class, ${percent(share)} of the two`)), h("div", { class: "thumbs" }, ids.slice(0, 8).map((id) => thumbLink(id)))),
  );
  return [confusion(found), ...(pairs.length ? pairs : [note("No two classes are confused.")])];
}

async function duplicates(again) {
  const found = await get("/check/duplicates");
  const start = () => attempt(async () => {
    await post("/check/duplicates");
    again();
  });
  if (found.running) return [note("Looking for near-duplicates …")];
  if (!found.ready) return [note("Copies, crops and rescaled versions of the same picture. It takes a while in a large folder."), button("Look for near-duplicates", start, { kind: "primary" })];
  const groups = [...found.groups].sort((a, b) => Number(b.across) - Number(a.across));
  if (!groups.length) return [note("No image is there twice."), button("Look again", start)];
  const cards = groups.slice(0, 200).map(({ ids, labels, across }) => {
    const box = h("article", { class: "card" });
    const keep = (id) => async () => (await keepOne(id, ids)) && box.remove();
    const members = ids.map((id) => h("div", { class: "stack tight" }, thumbLink(id), button("Keep this one", keep(id), { kind: "small" })));
    box.append(h("p", {}, across ? h("b", { class: "bad" }, "In several classes: ") : `${plural(ids.length, "copy", "copies")} `, across ? labels.map(chip) : null), h("div", { class: "thumbs large" }, members));
    return box;
  });
  return [h("p", { class: "soft" }, `${plural(groups.length, "group")}. The others are set aside; no file is deleted.`), ...cards];
}

async function lonely() {
  const { items } = await get("/check/lonely", { limit: 100 });
  if (!items.length) return [note("No image stands alone.")];
  const cards = items.map((one) => card(one.id, [h("p", { class: "soft" }, `Likeness to its nearest images: ${one.similarity.toFixed(2)}`)], [["Set aside", () => skip([one.id])]]));
  return [h("p", { class: "soft" }, "Least like any other image: a rare class, a mistake of the camera, or a file that does not belong here."), h("div", { class: "cards check-cards" }, cards)];
}

async function disagreements() {
  const { items } = await get("/check/disagreements");
  if (!items.length) return [note("Nobody disagrees.")];
  const cards = items.map((one) =>
    card(
      one.id,
      one.votes.map((vote) => h("p", {}, h("b", {}, vote.who), " ", chip(vote.label))),
      [...new Set(one.votes.map((vote) => vote.label))].filter((id) => id !== null).map((id) => [nameOf(id), () => label([one.id], id)]),
    ),
  );
  return [h("div", { class: "cards check-cards" }, cards)];
}
