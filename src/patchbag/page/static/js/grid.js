// A grid of any number of images: only what is on the screen is in the page. Selection by click, shift, drag and keys.

import { clamp, h, plural, say, throttle } from "./dom.js";
import { HEAD, Layout } from "./layout.js";
import { forgetWanted, need, on } from "./store.js";
import { fillTile, makeTile } from "./tile.js";

const GAP = 10;
const LINE = 30;
const AHEAD = 120; // milliseconds until rows beyond the screen are drawn, when what is on it is there
const PATIENCE = 10; // times that this is waited for
const MOVED = 6; // pixels from which a click is a drag

export class Grid {
  /** `head(group)`: content of a group's heading; `caption(image)`: elements under a picture; `open(id)`; `changed()`. */
  constructor({ label, head = null, caption = null, open = () => {}, changed = () => {} }) {
    Object.assign(this, { head, caption, open, changed });
    this.ids = [];
    this.selected = new Set();
    this.focus = -1;
    this.anchor = -1;
    this.side = 168;
    this.tiles = new Map();
    this.heads = h("div", { class: "grid-heads" });
    this.list = h("div", { class: "grid-list", role: "listbox", tabindex: "0", "aria-multiselectable": "true", "aria-label": label });
    this.band = h("div", { class: "band", hidden: true });
    this.space = h("div", { class: "grid-space" }, this.heads, this.list, this.band);
    this.element = h("div", { class: "grid" }, this.space);
    this.element.addEventListener("scroll", () => this._draw(), { passive: true });
    this.list.addEventListener("pointerdown", (event) => this._down(event));
    this.list.addEventListener("dblclick", (event) => {
      const tile = event.target.closest(".tile");
      if (tile) this.open(Number(tile.dataset.id));
    });
    this.list.addEventListener("focus", () => {
      if (this.focus < 0 && this.ids.length) this._moveTo(this._firstShown());
    });
    this.observer = new ResizeObserver(() => this._arrange());
    this.observer.observe(this.element);
    this._draw = throttle(() => this._drawNow(), 16);
    this._settle = throttle(() => need(this._shown()), 60);
    this.stop = on("details stale classes", (ids, type) => this._news(ids, type));
  }

  destroy() {
    this.stop();
    this.observer.disconnect();
    clearTimeout(this.later);
  }

  /** New images; what was selected stays so where it is still there. */
  setItems(ids, groups = null, { keep = false } = {}) {
    const focused = this.ids[this.focus];
    this.ids = ids;
    this.groupList = groups;
    this.index = null;
    if (this.selected.size) {
      const there = new Set(ids);
      this.selected = new Set([...this.selected].filter((id) => there.has(id)));
    }
    const place = keep ? ids.indexOf(focused) : -1;
    this.focus = place >= 0 ? place : keep ? Math.min(this.focus, ids.length - 1) : -1;
    this.anchor = this.focus;
    if (!keep) this.element.scrollTop = 0;
    this._arrange();
    this.changed();
  }

  setSide(side) {
    const top = this._firstShown();
    this.side = side;
    this._arrange();
    if (this.ids.length) this.element.scrollTop = this.layout.place(clamp(top, 0, this.ids.length - 1)).top - HEAD;
  }

  /** The selected images in their order, else the one in focus. */
  targets() {
    if (this.selected.size) return this.ids.filter((id) => this.selected.has(id));
    return this.focus >= 0 && document.activeElement === this.list ? [this.ids[this.focus]] : [];
  }

  select(ids) {
    this.selected = new Set(ids);
    this._drawNow();
    this.changed();
  }

  /** On to the next image after the selection was dealt with. */
  advance() {
    const last = this.selected.size ? this.ids.findLastIndex((id) => this.selected.has(id)) : this.focus;
    this.selected.clear();
    this._moveTo(Math.min(last + 1, this.ids.length - 1));
    this.changed();
  }

  _arrange() {
    const width = this.element.clientWidth;
    if (!width) return;
    const columns = Math.max(2, Math.floor((width + GAP) / (this.side + GAP)));
    const tile = Math.floor((width - GAP * (columns - 1)) / columns);
    const plan = [this.ids, this.groupList, columns, tile];
    if (!plan.every((part, i) => part === this.plan?.[i])) {
      Object.assign(this, { plan, tile });
      this.layout = new Layout(this.ids.length, this.groupList, columns, tile + LINE + GAP);
      this.space.style.height = `${this.layout.height}px`;
      this.tiles.forEach((one) => one.remove());
      this.tiles.clear();
    } // else only the height is another, and a tile that is being clicked on stays
    this._drawNow();
  }

  _shown() {
    return [...this.tiles.keys()];
  }

  _firstShown() {
    return this.layout ? this.layout.range(this.element.scrollTop, this.element.scrollTop)[0] : 0;
  }

  _drawNow(margin = 0) {
    if (!this.layout) return;
    const [top, height] = [this.element.scrollTop, this.element.clientHeight];
    const [first, last] = this.layout.range(top - margin, top + height + margin);
    clearTimeout(this.later);
    if (!margin) this._drawAhead(height / 2, PATIENCE);
    const shown = new Set();
    for (let i = first; i < last; i++) shown.add(this.ids[i]);
    for (const [id, tile] of this.tiles) {
      if (shown.has(id) || (!margin && this._near(tile, top, height))) continue;
      tile.firstChild.removeAttribute("src"); // an answer that nobody waits for
      tile.remove();
      this.tiles.delete(id);
    }
    forgetWanted();
    for (let i = first; i < last; i++) this._drawTile(i);
    this._drawHeads(top, height);
    const current = this.focus >= 0 ? this.tiles.get(this.ids[this.focus]) : null;
    if (current) this.list.setAttribute("aria-activedescendant", current.id);
    else this.list.removeAttribute("aria-activedescendant");
    this._settle();
  }

  /** What is seen comes first: rows beyond it are drawn when all of its pictures are there, or have been waited for. */
  _drawAhead(margin, left) {
    this.later = setTimeout(() => {
      const waits = [...this.tiles.values()].some(({ firstChild: picture }) => picture.shown !== "" && !picture.classList.contains("ready"));
      if (waits && left) this._drawAhead(margin, left - 1);
      else this._drawNow(margin);
    }, AHEAD);
  }

  _near(tile, top, height) {
    return tile.top > top - height && tile.top < top + 2 * height;
  }

  _drawTile(i) {
    const id = this.ids[i];
    let tile = this.tiles.get(id);
    if (!tile) {
      tile = makeTile("div", { role: "option", id: `tile-${id}`, dataset: { id } });
      const { column, top } = this.layout.place(i);
      tile.top = top;
      tile.style.transform = `translate(${column * (this.tile + GAP)}px, ${top}px)`;
      tile.style.width = `${this.tile}px`;
      tile.firstChild.style.height = `${this.tile}px`;
      tile.setAttribute("aria-setsize", this.ids.length);
      tile.setAttribute("aria-label", "image");
      this.tiles.set(id, tile);
      this.list.append(tile);
    }
    tile.setAttribute("aria-posinset", i + 1);
    tile.setAttribute("aria-selected", String(this.selected.has(id)));
    tile.classList.toggle("focused", i === this.focus);
    fillTile(tile, id, this.caption);
  }

  _drawHeads(top, height) {
    if (!this.head) return;
    const groups = this.layout.heads(top - height / 2, top + 1.5 * height);
    this.heads.replaceChildren(
      ...groups.map((group) => h("div", { class: "grid-head", style: { transform: `translateY(${group.top}px)` } }, this.head(group))),
    );
  }

  _news(ids, type) {
    if (type === "stale") this._settle();
    else if (type === "details") {
      for (const id of ids) if (this.tiles.has(id)) fillTile(this.tiles.get(id), id, this.caption);
    } else this.tiles.forEach((tile, id) => ((tile.dataset.text = ""), fillTile(tile, id, this.caption)));
  }

  // --- keys ---

  /** true if the key was for the grid. */
  keydown(event) {
    if (!this.ids.length || event.altKey) return false;
    const { key } = event;
    const control = event.ctrlKey || event.metaKey;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.layout.row));
    if (control && key.toLowerCase() === "a") {
      this.select(this.ids);
      say(`${plural(this.ids.length, "image")} selected`);
    } else if (control) return false;
    else if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown"].includes(key)) {
      this._go(this.focus < 0 ? this._firstShown() : this.layout.move(this.focus, key, page), event.shiftKey);
    } else if (key === "Home") this._go(0, event.shiftKey);
    else if (key === "End") this._go(this.ids.length - 1, event.shiftKey);
    else if (key === " " && this.focus >= 0) this._toggle(this.focus);
    else if (key === "Enter" && this.focus >= 0) this.open(this.ids[this.focus]);
    else if (key === "Escape" && this.selected.size) this.select([]);
    else return false;
    event.preventDefault();
    return true;
  }

  _go(index, extend) {
    const to = clamp(index, 0, this.ids.length - 1);
    if (extend) this._extend(to);
    this._moveTo(to, !extend);
  }

  _moveTo(index, anchored = true) {
    if (index < 0 || index >= this.ids.length) return;
    this.focus = index;
    if (anchored) this.anchor = index;
    const { top } = this.layout.place(index);
    const box = this.element;
    if (top < box.scrollTop) box.scrollTop = top - (this.layout.headed ? HEAD : 0);
    else if (top + this.layout.row > box.scrollTop + box.clientHeight) box.scrollTop = top + this.layout.row - box.clientHeight;
    this.list.focus({ preventScroll: true });
    this._drawNow();
  }

  _toggle(index) {
    const id = this.ids[index];
    if (!this.selected.delete(id)) this.selected.add(id);
    this._moveTo(index);
    this.changed();
  }

  _extend(to) {
    const from = this.anchor < 0 ? to : this.anchor;
    this.selected = new Set(this.ids.slice(Math.min(from, to), Math.max(from, to) + 1));
    this.changed();
  }

  // --- pointer ---

  _down(event) {
    if (event.button !== 0) return;
    const tile = event.target.closest(".tile");
    const index = tile ? this.ids.indexOf(Number(tile.dataset.id)) : -1;
    const touch = event.pointerType === "touch";
    const start = this._point(event);
    const before = event.ctrlKey || event.metaKey || event.shiftKey ? new Set(this.selected) : new Set();
    let dragged = false;
    let last = event;
    const follow = () => {
      if (!dragged) return;
      const [x, y] = this._point(last);
      this._select(start, [x, y], before);
      const edge = this.element.getBoundingClientRect();
      const beyond = last.clientY - clamp(last.clientY, edge.top + 20, edge.bottom - 20);
      if (beyond) this.element.scrollTop += clamp(beyond, -30, 30);
      requestAnimationFrame(follow);
    };
    const move = (now) => {
      last = now;
      const [x, y] = this._point(now);
      if (!dragged && !touch && Math.hypot(x - start[0], y - start[1]) > MOVED) {
        dragged = true;
        this.list.setPointerCapture(event.pointerId);
        requestAnimationFrame(follow);
      }
    };
    const up = (now) => {
      this.list.removeEventListener("pointermove", move);
      this.list.removeEventListener("pointerup", up);
      this.list.removeEventListener("pointercancel", up);
      if (dragged) {
        this._select(start, this._point(now), before); // also where it was too quick for a frame
        this.changed();
      }
      if (!dragged && now.type === "pointerup") this._clicked(index, now, touch);
      dragged = false;
      this.band.hidden = true;
    };
    this.list.addEventListener("pointermove", move);
    this.list.addEventListener("pointerup", up);
    this.list.addEventListener("pointercancel", up);
  }

  _clicked(index, event, touch) {
    if (index < 0) return this.select([]);
    if (event.shiftKey) {
      this._extend(index);
      return this._moveTo(index, false);
    }
    if (touch || event.ctrlKey || event.metaKey) return this._toggle(index);
    this.selected = new Set([this.ids[index]]);
    this._moveTo(index);
    return this.changed();
  }

  _point(event) {
    const box = this.space.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  _select([x0, y0], [x1, y1], before) {
    const [left, right, top, bottom] = [Math.min(x0, x1), Math.max(x0, x1), Math.min(y0, y1), Math.max(y0, y1)];
    this.band.hidden = false;
    Object.assign(this.band.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
    const chosen = new Set(before);
    const [first, last] = this.layout.range(top, bottom);
    for (let i = first; i < last; i++) {
      const place = this.layout.place(i);
      const x = place.column * (this.tile + GAP);
      if (x < right && x + this.tile > left && place.top < bottom && place.top + this.tile > top) chosen.add(this.ids[i]);
    }
    this.selected = chosen;
    this._drawNow();
  }
}
