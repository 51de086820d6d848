// Elements, icons and numbers. Names of files and classes are only ever text nodes.

/** An element: properties (`on…` listeners, `class`, `style` and `dataset` objects, else attributes) and children. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (key === "style" || key === "dataset") Object.assign(element[key], value);
    else if (key === "value" || key === "checked" || key === "selected" || key === "textContent") element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children.flat(2));
  return element;
}

const PATHS = {
  gallery: "M3 3h6v6H3zM11 3h6v6h-6zM3 11h6v6H3zM11 11h6v6h-6z",
  ask: "M10 17.5v.01M7 7.2a3 3 0 1 1 4.6 2.5C10.5 10.4 10 11 10 13",
  check: "M3.5 10.5l4 4 9-9.5",
  search: "M8.5 14a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM12.6 12.6L17 17",
  map: "M5 15.5v.01M8 9.5v.01M12 12v.01M15 5v.01M5.5 4.5v.01M15.5 15v.01M10.5 6v.01",
  classes: "M3 5h1.5M7.5 5H17M3 10h1.5M7.5 10H17M3 15h1.5M7.5 15H17",
  out: "M10 12.5V3M6.5 6.5L10 3l3.5 3.5M3.5 12v4.5h13V12",
  undo: "M7.5 4L3.5 8l4 4M3.5 8H12a4.5 4.5 0 0 1 0 9H9",
  redo: "M12.5 4l4 4-4 4M16.5 8H8a4.5 4.5 0 0 0 0 9h3",
  light: "M10 13.5a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.5 4.5l1 1M14.5 14.5l1 1M4.5 15.5l1-1M14.5 5.5l1-1",
  dark: "M16.5 11.5A7 7 0 0 1 8.5 3.5a7 7 0 1 0 8 8z",
  help: "M10 15.2v.01M7.8 7.6a2.3 2.3 0 1 1 3.5 1.9c-.9.6-1.3 1-1.3 2.2M10 18a8 8 0 1 0 0-16 8 8 0 0 0 0 16z",
  close: "M5 5l10 10M15 5L5 15",
  open: "M4 10s2.5-5 6-5 6 5 6 5-2.5 5-6 5-6-5-6-5zM10 12a2 2 0 1 0 0-4 2 2 0 0 0 0 4z",
  person: "M10 10a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM3.5 17.5c.8-3.5 3.3-5 6.5-5s5.7 1.5 6.5 5",
  refresh: "M16.5 10a6.5 6.5 0 1 1-2-4.7M16.5 3v3.5H13",
  left: "M12.5 4L6.5 10l6 6",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.8 11h7.4l.8-11",
  heat: "M10 2.5c.5 3 4.5 5 4.5 9a4.5 4.5 0 0 1-9 0c0-2 1-3 1.8-4 .3 1 .8 1.6 1.4 2C9 7 9 5 10 2.5z",
};

/** A line icon; it is decoration, the button around it has the name. */
export function icon(name) {
  const path = svg("path", { d: PATHS[name] });
  return svg("svg", { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true", focusable: "false" }, path);
}

/** A button with a text, an icon, or both. */
export function button(text, onclick, { name = null, kind = "", label = null, title = null, ...rest } = {}) {
  const content = [name && icon(name), text && h("span", {}, text)];
  return h("button", { type: "button", class: `button ${kind}`, onclick, title, "aria-label": label, ...rest }, content);
}

export const count = (n) => Number(n).toLocaleString("en");
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const percent = (p) => (p === null || p === undefined ? "" : p > 0 && p < 0.005 ? "<1 %" : `${Math.round(100 * p)} %`);
/** A remark of the server as a sentence. */
export const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}` : "");
export const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
export const fileName = (path) => path.split("/").pop();

/** Calls at most once per `wait` milliseconds, the last one always. */
export function throttle(work, wait) {
  let timer = null;
  let last = -Infinity;
  return (...given) => {
    clearTimeout(timer);
    const due = last + wait - performance.now();
    const go = () => {
      last = performance.now();
      work(...given);
    };
    if (due <= 0) go();
    else timer = setTimeout(go, due);
  };
}

/** Whether keys that are pressed there are text. */
export function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "range", "button", "color", "file"].includes(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || target.isContentEditable;
}

/** Say something to a screen reader. */
export function say(text) {
  const live = document.getElementById("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = text), 30);
}
