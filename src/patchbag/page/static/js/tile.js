// One image as a tile: its picture, and what is said of it.

import { thumb } from "./api.js";
import { fileName, h, icon, percent } from "./dom.js";
import { classOf, detail, need, smallOf } from "./store.js";

/** The line below a picture: its label, else the model's guess with its probability. */
export function verdict(image) {
  const label = classOf(image.label);
  if (image.broken) return [h("span", { class: "chip bad" }, "cannot be read"), h("small", { class: "cut" }, fileName(image.name))];
  if (image.gone) return [h("span", { class: "chip bad" }, "file is gone")];
  if (label) {
    const chip = h("span", { class: image.pending ? "chip pending" : "chip" }, dot(label.color), h("span", { class: "cut" }, label.name));
    return [chip, image.disagreement ? h("span", { class: "chip bad", title: "People disagree" }, "≠") : null];
  }
  if (image.skipped) return [h("span", { class: "chip soft" }, "set aside")];
  const predicted = classOf(image.predicted);
  if (!predicted) return [h("span", { class: "chip soft" }, "no label")];
  const name = h("span", { class: "cut" }, predicted.name);
  return [h("span", { class: "chip guess" }, dot(predicted.color), name, h("small", {}, percent(image.probability)))];
}

/** The same in words. */
export function spoken(image) {
  const label = classOf(image.label);
  const predicted = classOf(image.predicted);
  if (image.broken) return `${fileName(image.name)}, cannot be read`;
  if (label) return `${fileName(image.name)}, labelled ${label.name}`;
  return `${fileName(image.name)}, ${predicted ? `guess ${predicted.name} ${percent(image.probability)}` : "no label"}`;
}

/** A spot in the colour of a class. */
export function dot(color) {
  return h("i", { class: "dot", style: { background: color ?? "var(--line)" } });
}

/** Fill a tile from what is known of its image; `caption` replaces the verdict. */
export function fillTile(tile, id, caption = null) {
  const image = detail(id);
  const small = smallOf(id);
  const [picture, line] = tile.children;
  const wanted = image && (image.broken || image.gone ? "" : `${id} ${image.v}`);
  if (!image || (small === undefined && picture.shown !== wanted)) need([id]);
  if (!image) return;
  if (picture.shown !== wanted && (small !== undefined || !wanted)) {
    picture.shown = wanted;
    picture.classList.remove("ready");
    if (wanted) picture.src = small?.v === image.v ? small.source : thumb(image);
    else picture.removeAttribute("src");
  }
  tile.title = image.broken ? `${image.name}: ${image.broken}` : image.name;
  tile.setAttribute("aria-label", spoken(image));
  tile.classList.toggle("labelled", image.label !== null);
  const text = JSON.stringify([image.pending, image.label, image.skipped, image.disagreement, image.predicted, image.probability, image.broken, image.gone]);
  if (caption || tile.dataset.text !== text || !line.childElementCount) {
    tile.dataset.text = text;
    line.replaceChildren(...(caption ? caption(image) : verdict(image)).filter(Boolean));
  }
}

/** An empty tile. */
export function makeTile(tag = "div", properties = {}) {
  const picture = h("img", { alt: "", decoding: "async", draggable: "false", onload: ({ target }) => target.classList.add("ready"), onerror: ({ target }) => delete target.shown });
  return h(tag, { class: "tile", ...properties }, picture, h("span", { class: "line" }), h("span", { class: "tick", "aria-hidden": "true" }, icon("check")));
}

/** A picture that is a link to the image; `below` are elements under it. */
export function thumbLink(id, below = null) {
  const tile = makeTile("a", { href: `#/image/${id}`, class: "tile still", "aria-label": "image" });
  const fill = () => fillTile(tile, id, below && (() => below));
  tile.fill = fill;
  fill();
  return tile;
}

/** Keep the pictures below an element up to date with details that come. */
export function refreshTiles(root) {
  root.querySelectorAll(".tile.still").forEach((tile) => tile.fill?.());
}
