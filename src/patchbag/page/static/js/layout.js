// Where tiles and headings of a grid lie: arithmetic only, so that 100,000 images cost nothing.

export const HEAD = 48;

/** Rows of `columns` tiles of height `row`, group after group, each below a heading where there are groups. */
export class Layout {
  constructor(total, groups, columns, row) {
    this.columns = columns;
    this.row = row;
    this.headed = Boolean(groups);
    let top = 0;
    this.groups = (groups ?? [{ start: 0, count: total, label: null }]).map((group) => {
      const placed = { ...group, top, rows: Math.ceil(group.count / columns) };
      placed.first = top + (this.headed ? HEAD : 0);
      top = placed.first + placed.rows * row;
      return placed;
    });
    this.height = top;
    this.total = total;
  }

  _search(passed) {
    let low = 0;
    let high = this.groups.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (passed(this.groups[middle])) low = middle;
      else high = middle - 1;
    }
    return this.groups[low];
  }

  groupOf(index) {
    return this._search((group) => group.start <= index);
  }

  /** Column and top of a tile. */
  place(index) {
    const group = this.groupOf(index);
    const inside = index - group.start;
    return { column: inside % this.columns, top: group.first + Math.floor(inside / this.columns) * this.row };
  }

  /** Indices of tiles in the rows that touch heights from…to, as [first, last). */
  range(from, to) {
    if (!this.total) return [0, 0];
    return [this._edge(from, false), this._edge(to, true)];
  }

  _edge(y, end) {
    const group = this._search((one) => one.top <= y);
    const rows = Math.floor((y - group.first) / this.row) + (end ? 1 : 0);
    return group.start + Math.min(Math.max(rows, 0) * this.columns, group.count);
  }

  /** The groups whose headings touch from…to. */
  heads(from, to) {
    return this.headed ? this.groups.filter((group) => group.top + HEAD >= from && group.top <= to) : [];
  }

  /** The tile nearest to an offset of columns and rows from another, across headings. */
  move(index, key, page) {
    const group = this.groupOf(index);
    const inside = index - group.start;
    const column = inside % this.columns;
    const at = this.groups.indexOf(group);
    if (key === "ArrowLeft") return index - 1;
    if (key === "ArrowRight") return index + 1;
    if (key === "PageUp") return index - page * this.columns;
    if (key === "PageDown") return index + page * this.columns;
    if (key === "ArrowDown") {
      if (inside + this.columns < group.count) return index + this.columns;
      if (Math.floor(inside / this.columns) < group.rows - 1) return group.start + group.count - 1;
      const next = this.groups[at + 1];
      return next ? next.start + Math.min(column, next.count - 1) : index;
    }
    if (inside >= this.columns) return index - this.columns;
    const above = this.groups[at - 1];
    if (!above) return index;
    const last = above.start + (above.rows - 1) * this.columns + column;
    return Math.min(last, above.start + above.count - 1);
  }
}
