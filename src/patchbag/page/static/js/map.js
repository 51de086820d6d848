// The collection in two dimensions. Drag to lasso, wheel to zoom; keys move a circle that selects.

import { classOfKey, label } from "./actions.js";
import { get, post, thumb } from "./api.js";
import { button, clamp, h, isTyping, plural, say, sentence, throttle } from "./dom.js";
import { Grid } from "./grid.js";
import { Picker } from "./picker.js";
import { Scatter } from "./scatter.js";
import { classes, detail, need, on } from "./store.js";
import { dot } from "./tile.js";
import { attempt, fail } from "./toast.js";

const COLOURS = [
  ["label", "Label"],
  ["predicted", "Expected class"],
  ["doubt", "Doubt"],
  ["wrong", "Error"],
];

export async function mount(root) {
  let mode = "predicted";
  let columns = null;
  let hovered = -1;
  const plot = new Scatter({ selected, hover });
  const picker = new Picker({ pick: apply, label: "Label the selection", counts: true });
  const grid = new Grid({ label: "Selected images", open: (id) => (location.hash = `#/image/${id}`) });
  grid.setSide(84);
  grid.element.hidden = true;
  const tally = h("p", { class: "soft", role: "status" }, "Nothing is selected.");
  const legend = h("div", { class: "legend wrap" });
  const note = h("p", { class: "soft small" });
  const modes = h("div", { class: "segments", role: "group", "aria-label": "Colour by" });
  const redo = button("Make the map", make, { name: "refresh", kind: "small" });
  const hold = button("Move", () => setTool(!plot.panning), { kind: "small", "aria-pressed": "false", title: "Drag moves the map instead of selecting" });
  const reset = button("Whole map", () => plot.reset(), { kind: "small" });
  const tip = h("div", { class: "map-tip", hidden: true }, h("img", { alt: "" }), h("span", { class: "cut" }));
  const bar = h("div", { class: "toolbar" }, h("h1", {}, "Map"), modes, h("span", { class: "fill" }), hold, reset, redo);
  const empty = h("p", { class: "map-empty", role: "status", hidden: true });
  const stage = h("div", { class: "map-stage" }, plot.element, empty, tip);
  const side = h("aside", { class: "dock", "aria-label": "Selection" }, h("h2", {}, "Selection"), tally, picker.element, grid.element);
  root.append(h("div", { class: "gallery map" }, h("div", { class: "gallery-main" }, bar, stage, legend, note), side));
  drawModes();
  const recolour = throttle(async () => ((columns = await get("/columns")), paint()), 500);
  const stops = [
    on("labelled labels model", () => recolour()),
    on("classes", () => paint()),
    on("progress", ({ stage: work, done, total }) => work === "map" && (done ? load() : announce("The map is being made …"))),
    on("details", () => hovered >= 0 && showTip()),
  ];
  const repaint = () => paint();
  window.addEventListener("themechange", repaint);
  await load();

  async function load() {
    try {
      const [map, found] = await Promise.all([get("/map"), get("/columns")]);
      columns = found;
      announce(map.ready ? "" : map.running ? "The map is being made …" : "There is no map yet: the first images are being described.");
      note.textContent = map.ready ? `Places by ${map.method}${map.running ? "; a better map is being made …" : ""}` : "";
      if (map.ready) plot.setPoints(map.ids, map.x, map.y);
      redo.lastChild.textContent = map.ready ? "Make it anew" : "Make the map";
      paint();
    } catch (error) {
      announce(sentence(error.message));
      if (error.status === 0) fail(error);
    }
  }

  function announce(text) {
    empty.textContent = text;
    empty.hidden = !text;
  }

  function make() {
    return attempt(async () => {
      await post("/map");
      note.textContent = "The map is being made anew …";
    });
  }

  function drawModes() {
    modes.replaceChildren(...COLOURS.map(([key, text]) => h("button", { type: "button", class: "segment", "aria-pressed": String(key === mode), onclick: () => ((mode = key), drawModes(), paint()) }, text)));
  }

  function paint() {
    if (!columns) return;
    const style = getComputedStyle(document.documentElement);
    const tone = (name) => style.getPropertyValue(name).trim();
    const place = new Map(columns.ids.map((id, i) => [id, i]));
    const colours = new Map(classes().map((one) => [one.id, one.color]));
    const steps = ["--doubt-0", "--doubt-1", "--doubt-2", "--doubt-3"].map(tone);
    const nothing = tone("--nothing");
    plot.setColours((id) => {
      const i = place.get(id);
      if (i === undefined) return nothing;
      if (mode === "label" || mode === "predicted") return colours.get(columns[mode][i]) ?? nothing;
      if (mode === "wrong") return columns.wrong[i] ? tone("--bad") : nothing;
      return columns.doubt[i] < 0 ? nothing : steps[clamp(Math.floor(4 * columns.doubt[i]), 0, 3)];
    });
    const entry = (colour, text) => h("span", { class: "row" }, dot(colour), text);
    if (mode === "doubt") legend.replaceChildren(...steps.map((colour, i) => entry(colour, ["sure", "fairly sure", "doubtful", "no idea"][i])));
    else if (mode === "wrong") legend.replaceChildren(entry(tone("--bad"), "model disagrees with the label"), entry(nothing, "others"));
    else legend.replaceChildren(...classes().map((one) => entry(one.color, one.name)), entry(nothing, mode === "label" ? "no label" : "not expected yet"));
  }

  function selected(ids) {
    grid.element.hidden = !ids.length;
    grid.setItems(ids);
    tally.textContent = ids.length ? `${plural(ids.length, "image")} selected.` : "Nothing is selected.";
    say(tally.textContent);
  }

  function hover(id, x, y) {
    hovered = id;
    tip.hidden = id < 0;
    if (id < 0) return;
    need([id]);
    tip.style.transform = `translate(${x}px, ${y}px)`;
    tip.classList.toggle("leftwards", x > plot.element.clientWidth / 2);
    showTip();
  }

  function showTip() {
    const image = detail(hovered);
    tip.firstChild.hidden = !image;
    if (!image) return;
    tip.firstChild.src = thumb(image);
    tip.lastChild.textContent = image.name;
  }

  function apply(choice) {
    const ids = grid.selected.size ? grid.targets() : plot.selection;
    if (ids.length) label(ids, choice);
  }

  function setTool(panning) {
    plot.panning = panning;
    hold.setAttribute("aria-pressed", String(panning));
    plot.element.classList.toggle("panning", panning);
  }

  return {
    unmount() {
      stops.forEach((stop) => stop());
      window.removeEventListener("themechange", repaint);
      plot.destroy();
      grid.destroy();
      picker.stop();
    },
    keydown(event) {
      if (isTyping(event.target)) return false;
      const one = classOfKey(event);
      if (one && plot.selection.length) return apply(one.id), true;
      if (document.activeElement === plot.element && plot.keydown(event)) return true;
      return document.activeElement === grid.list && grid.keydown(event);
    },
  };
}
