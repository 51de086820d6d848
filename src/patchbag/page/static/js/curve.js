// Expected accuracy against the number of labels, with its interval.

import { h, percent, svg } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 130;
const LEFT = 34;
const BOTTOM = 20;

/** A figure of points {labels, expected, low, high}. */
export function curve(points) {
  if (!points.length) return h("p", { class: "soft small" }, "The curve begins when two classes have labels.");
  const last = points[points.length - 1];
  const most = Math.max(last.labels, 10);
  const lowest = Math.max(0, Math.min(...points.map((point) => point.low)) - 0.05);
  const x = (n) => LEFT + (n / most) * (WIDTH - LEFT - 8);
  const y = (p) => 6 + ((1 - p) / (1 - lowest)) * (HEIGHT - BOTTOM - 6);
  const line = points.map((point) => `${x(point.labels).toFixed(1)},${y(point.expected).toFixed(1)}`).join(" ");
  const under = [...points].reverse().map((point) => `${x(point.labels).toFixed(1)},${y(point.low).toFixed(1)}`);
  const over = points.map((point) => `${x(point.labels).toFixed(1)},${y(point.high).toFixed(1)}`);
  const middle = (1 + lowest) / 2;
  const ticks = [lowest, middle, 1].map((p) => [
    svg("line", { x1: LEFT, x2: WIDTH - 8, y1: y(p), y2: y(p), class: "rule" }),
    svg("text", { x: LEFT - 6, y: y(p) + 4, "text-anchor": "end" }, `${Math.round(100 * p)}`),
  ]);
  const text = `Expected accuracy ${percent(last.expected)}, between ${percent(last.low)} and ${percent(last.high)}, after ${last.labels} labels`;
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": text, class: "curve" },
    ticks,
    svg("polygon", { points: [...over, ...under].join(" "), class: "interval" }),
    svg("polyline", { points: line, class: "line" }),
    svg("line", { x1: x(last.labels), x2: x(last.labels), y1: y(last.low), y2: y(last.high), class: "error" }),
    svg("circle", { cx: x(last.labels), cy: y(last.expected), r: 3.5, class: "end" }),
    svg("text", { x: LEFT, y: HEIGHT - 4 }, "0"),
    svg("text", { x: WIDTH - 8, y: HEIGHT - 4, "text-anchor": "end" }, `${most} labels`),
  );
}
