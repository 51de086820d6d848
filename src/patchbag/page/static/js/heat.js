// A heat map over a picture, and rectangles drawn into it.

import { clamp, h } from "./dom.js";
import { isDark } from "./theme-state.js";

const FOR = [31, 122, 92];
const FOR_DARK = [79, 214, 150];
const STEP = 0.05; // of the picture, per key
const AGAINST = [200, 60, 40];

/** Paint signed values (rows × columns) into a canvas: green speaks for, red against; strength is the opacity. */
export function paintHeat(canvas, grid, scale = null) {
  const { rows, columns, values } = grid;
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  const largest = scale ?? Math.max(1e-12, ...values.flat().map(Math.abs));
  values.flat().forEach((value, i) => {
    const colour = value >= 0 ? (isDark() ? FOR_DARK : FOR) : AGAINST;
    pixels.data.set([...colour, Math.round(225 * Math.sqrt(Math.min(1, Math.abs(value) / largest)))], 4 * i);
  });
  context.putImageData(pixels, 0, 0);
  return largest;
}

/** A picture with a layer for heat and a rectangle that is drawn with the mouse or moved with the keys. */
export class Canvas {
  constructor({ drawn = () => {} } = {}) {
    this.drawn = drawn;
    this.box = null;
    this.image = h("img", { alt: "", draggable: "false" });
    this.heat = h("canvas", { class: "heat", "aria-hidden": "true" });
    this.frame = h("div", { class: "rectangle", hidden: true });
    this.element = h(
      "div",
      { class: "picture", tabindex: "0", role: "application", "aria-label": "Part of the picture: arrows move a rectangle, with shift they resize it, Enter takes it, Escape leaves it" },
      this.image,
      this.heat,
      this.frame,
    );
    this.element.addEventListener("keydown", (event) => this._key(event));
    this.image.addEventListener("load", () => this.element.style.setProperty("--ratio", this.image.naturalWidth / this.image.naturalHeight));
    this.element.addEventListener("pointerdown", (event) => this._down(event));
  }

  /** Shares of width and height, or null. */
  setBox(box) {
    this.box = box;
    this.frame.hidden = !box;
    if (!box) return;
    const share = (value) => `${100 * value}%`;
    Object.assign(this.frame.style, { left: share(box.left), top: share(box.top), width: share(box.right - box.left), height: share(box.bottom - box.top) });
  }

  _key(event) {
    const step = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    const box = this.box ?? { left: 0.25, right: 0.75, top: 0.25, bottom: 0.75 };
    if (step) {
      const [x, y] = step;
      const part = event.shiftKey ? { ...box } : { ...box, left: clamp(box.left + x, 0, 0.95), top: clamp(box.top + y, 0, 0.95) };
      part.right = clamp(box.right + x, part.left + STEP, 1);
      part.bottom = clamp(box.bottom + y, part.top + STEP, 1);
      this.setBox(part);
    } else if (event.key === "Enter") this.drawn(this.box);
    else if (event.key === "Escape" && this.box) {
      this.setBox(null);
      this.drawn(null);
    } else return;
    event.preventDefault();
  }

  _down(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    const edge = this.image.getBoundingClientRect();
    const at = (now) => [clamp((now.clientX - edge.left) / edge.width, 0, 1), clamp((now.clientY - edge.top) / edge.height, 0, 1)];
    const [x0, y0] = at(event);
    this.element.setPointerCapture(event.pointerId);
    const move = (now) => {
      const [x, y] = at(now);
      this.setBox({ left: Math.min(x0, x), right: Math.max(x0, x), top: Math.min(y0, y), bottom: Math.max(y0, y) });
    };
    const up = () => {
      this.element.removeEventListener("pointermove", move);
      this.element.removeEventListener("pointerup", up);
      const { box } = this;
      if (!box) return;
      if (box.right - box.left < 0.03 || box.bottom - box.top < 0.03) this.setBox(null);
      this.drawn(this.box);
    };
    this.element.addEventListener("pointermove", move);
    this.element.addEventListener("pointerup", up);
  }
}

/** Parameters of a rectangle for a search. */
export const boxQuery = (box) => (box ? { left: box.left.toFixed(4), top_: box.top.toFixed(4), right: box.right.toFixed(4), bottom: box.bottom.toFixed(4) } : {});
