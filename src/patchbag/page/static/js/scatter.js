// Points on a canvas: zoom, move, lasso, and a circle for the keyboard.

import { clamp, h } from "./dom.js";

const EDGE = 24;
const SMALL = 2; // pixels of a radius below which a square looks like a circle and is drawn much faster
const REACH = 14; // pixels within which a point is under the pointer

export class Scatter {
  /** `selected(ids)`; `hover(id or -1, x, y)`. */
  constructor({ selected, hover }) {
    Object.assign(this, { selected, hover });
    this.ids = [];
    this.selection = [];
    this.chosen = new Set();
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.panning = false;
    this.circle = null;
    this.lasso = null;
    this.colours = [];
    this.element = h("canvas", {
      class: "scatter",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "map",
      "aria-label": "Map of the images. Arrow keys move a circle, plus and minus zoom, brackets change the circle, Enter selects what is in it.",
    });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.element.addEventListener("wheel", (event) => this._wheel(event), { passive: false });
    this.element.addEventListener("pointerdown", (event) => this._down(event));
    this.element.addEventListener("pointermove", (event) => !this.lasso && this._over(event));
    this.element.addEventListener("pointerleave", () => this.hover(-1, 0, 0));
    this.element.addEventListener("focus", () => this.draw());
    this.element.addEventListener("blur", () => this.draw());
  }

  destroy() {
    this.observer.disconnect();
  }

  setPoints(ids, x, y) {
    Object.assign(this, { ids, x, y });
    const there = new Set(ids);
    this.choose(this.selection.filter((id) => there.has(id)), false);
  }

  setColours(colour) {
    this.colours = this.ids.map(colour);
    this.draw();
  }

  reset() {
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.draw();
  }

  choose(ids, tell = true) {
    this.selection = ids;
    this.chosen = new Set(ids);
    this.draw();
    if (tell) this.selected(ids);
  }

  _size() {
    return Math.min(this.element.clientWidth, this.element.clientHeight) - 2 * EDGE;
  }

  /** Pixels of the corner of the unit square, and of its side: asked once for many points. */
  _frame() {
    const side = this._size() * this.view.zoom;
    return [this.element.clientWidth / 2 - this.view.x * side, this.element.clientHeight / 2 - this.view.y * side, side];
  }

  /** Pixels of a point of the unit square. */
  at(x, y) {
    const [left, top, side] = this._frame();
    return [left + x * side, top + y * side];
  }

  /** The images whose points, in pixels, are as wanted. */
  _where(wanted) {
    const [left, top, side] = this._frame();
    return this.ids.filter((_, i) => wanted(left + this.x[i] * side, top + this.y[i] * side));
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this._draw());
  }

  _draw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    const ratio = devicePixelRatio || 1;
    if (this.element.width !== Math.round(width * ratio)) this.element.width = Math.round(width * ratio);
    if (this.element.height !== Math.round(height * ratio)) this.element.height = Math.round(height * ratio);
    const context = this.element.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const radius = clamp((this._size() / Math.sqrt(Math.max(this.ids.length, 1))) * 0.22, 1.2, 5) * Math.sqrt(this.view.zoom);
    const some = this.chosen.size > 0;
    const [left, top, side] = this._frame();
    for (let i = 0; i < this.ids.length; i++) {
      const x = left + this.x[i] * side;
      const y = top + this.y[i] * side;
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
      const chosen = some && this.chosen.has(this.ids[i]);
      const r = chosen ? radius + 1 : radius;
      context.globalAlpha = some && !chosen ? 0.22 : 0.9;
      context.fillStyle = this.colours[i] ?? "#888";
      if (r < SMALL) context.fillRect(x - r, y - r, 2 * r, 2 * r);
      else {
        context.beginPath();
        context.arc(x, y, r, 0, 7);
        context.fill();
      }
    }
    context.globalAlpha = 1;
    context.strokeStyle = getComputedStyle(this.element).color;
    context.lineWidth = 1.5;
    if (this.lasso) {
      context.setLineDash([5, 4]);
      context.beginPath();
      this.lasso.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.closePath();
      context.stroke();
      context.setLineDash([]);
    }
    if (this.circle && document.activeElement === this.element) {
      context.beginPath();
      context.arc(...this.at(this.circle.x, this.circle.y), this.circle.radius, 0, 7);
      context.stroke();
    }
  }

  _wheel(event) {
    event.preventDefault();
    this._zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }

  _zoom(factor, x, y) {
    const before = this._back(x, y);
    this.view.zoom = clamp(this.view.zoom * factor, 0.8, 60);
    const after = this._back(x, y);
    this.view.x += before[0] - after[0];
    this.view.y += before[1] - after[1];
    this.draw();
  }

  _back(x, y) {
    const scale = this._size() * this.view.zoom;
    return [this.view.x + (x - this.element.clientWidth / 2) / scale, this.view.y + (y - this.element.clientHeight / 2) / scale];
  }

  _nearest(px, py, reach) {
    let best = -1;
    let least = reach * reach;
    const [left, top, side] = this._frame();
    for (let i = 0; i < this.ids.length; i++) {
      const distance = (left + this.x[i] * side - px) ** 2 + (top + this.y[i] * side - py) ** 2;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  _over(event) {
    const i = this._nearest(event.offsetX, event.offsetY, REACH);
    this.hover(i < 0 ? -1 : this.ids[i], event.offsetX, event.offsetY);
  }

  _down(event) {
    if (event.button !== 0) return;
    this.element.setPointerCapture(event.pointerId);
    const start = [event.offsetX, event.offsetY];
    const from = { ...this.view };
    const moving = this.panning;
    if (!moving) this.lasso = [start];
    const move = (now) => {
      if (moving) {
        const scale = this._size() * this.view.zoom;
        this.view.x = from.x - (now.offsetX - start[0]) / scale;
        this.view.y = from.y - (now.offsetY - start[1]) / scale;
      } else this.lasso.push([now.offsetX, now.offsetY]);
      this.draw();
    };
    const up = (now) => {
      this.element.removeEventListener("pointermove", move);
      this.element.removeEventListener("pointerup", up);
      const path = this.lasso;
      this.lasso = null;
      if (!moving) this._close(path, now);
    };
    this.element.addEventListener("pointermove", move);
    this.element.addEventListener("pointerup", up);
  }

  _close(path, event) {
    let ids;
    if (path.length < 4) {
      const i = this._nearest(event.offsetX, event.offsetY, REACH);
      ids = i < 0 ? [] : [this.ids[i]];
    } else ids = this._where((x, y) => inside(path, x, y));
    this.choose(event.shiftKey ? [...new Set([...this.selection, ...ids])] : ids);
  }

  keydown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.ids.length) return false;
    this.circle ??= { x: this.view.x, y: this.view.y, radius: 40 };
    const step = 20 / (this._size() * this.view.zoom);
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (moves) {
      this.circle.x += moves[0];
      this.circle.y += moves[1];
      if (event.shiftKey) [this.view.x, this.view.y] = [this.circle.x, this.circle.y];
    } else if (event.key === "+" || event.key === "=") this._zoom(1.25, ...this.at(this.circle.x, this.circle.y));
    else if (event.key === "-") this._zoom(0.8, ...this.at(this.circle.x, this.circle.y));
    else if (event.key === "]") this.circle.radius = Math.min(this.circle.radius * 1.25, 400);
    else if (event.key === "[") this.circle.radius = Math.max(this.circle.radius / 1.25, 6);
    else if (event.key === "Enter") {
      const [cx, cy] = this.at(this.circle.x, this.circle.y);
      const { radius } = this.circle;
      this.choose(this._where((x, y) => Math.hypot(x - cx, y - cy) <= radius));
    } else if (event.key === "Escape" && this.selection.length) this.choose([]);
    else return false;
    this.draw();
    return true;
  }
}

/** Whether a point is inside a polygon: an odd number of edges to its right. */
export function inside(path, x, y) {
  let odd = false;
  for (let i = 0, j = path.length - 1; i < path.length; j = i++) {
    const [xi, yi] = path[i];
    const [xj, yj] = path[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) odd = !odd;
  }
  return odd;
}
