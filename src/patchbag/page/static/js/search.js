// Images like one of the collection, like a picture from elsewhere, or like a part of either.

import { classOfKey, label } from "./actions.js";
import { get, picture, upload } from "./api.js";
import { button, h, icon, isTyping, plural } from "./dom.js";
import { Grid } from "./grid.js";
import { boxQuery, Canvas } from "./heat.js";
import { Picker } from "./picker.js";
import { detail, on, remember, store } from "./store.js";
import { verdict } from "./tile.js";
import { attempt, fail } from "./toast.js";

const TOP = 120;
let kept = null; // a picture from elsewhere outlives a look at one of the results

export async function mount(root, address) {
  let query = address.query;
  let file = null;
  let distances = new Map();
  let ticket = 0;
  const canvas = new Canvas({ drawn: (box) => search(box) });
  const grid = new Grid({ label: "Images found", caption, open: (id) => (location.hash = `#/image/${id}`), changed: () => {} });
  const picker = new Picker({ pick: apply, label: "Label the selection", counts: true });
  const chooser = h("input", { type: "file", accept: "image/*", class: "unseen", tabindex: "-1", "aria-label": "Picture to search for" });
  chooser.addEventListener("change", () => chooser.files[0] && take(chooser.files[0]));
  const zone = h("div", { class: "drop" }, icon("search"), h("b", {}, "Drop or paste a picture"), h("span", { class: "soft" }, "or"), button("Choose a file", () => chooser.click(), { kind: "primary" }), chooser);
  const again = button("Whole picture", () => (canvas.setBox(null), search(null)), { kind: "small" });
  const other = button("Another picture", reset, { kind: "small" });
  const asked = h("div", { class: "asked-for", hidden: true }, canvas.element, h("p", { class: "soft small" }, "Drag a rectangle to search for a part."), h("div", { class: "row" }, again, other));
  const tally = h("p", { class: "soft", role: "status" });
  const left = h("div", { class: "search-side" }, h("section", { class: "card" }, h("h1", {}, "Search"), zone, asked, tally), h("section", { class: "card dock-card", "aria-label": "Label" }, h("h2", {}, "Label the selection"), picker.element));
  root.append(h("div", { class: "search" }, left, h("div", { class: "search-main" }, grid.element)));
  const stop = on("details", () => canvas.image.dataset.id && !canvas.image.src && showQuery());

  for (const [type, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    root.addEventListener(type, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", over);
      const dropped = type === "drop" ? [...event.dataTransfer.files].find((one) => one.type.startsWith("image/")) : null;
      if (dropped) take(dropped);
    });
  }
  const pasted = () => {
    if (store.pasted) take(store.pasted);
    store.pasted = null;
  };
  window.addEventListener("picturepaste", pasted);
  if (store.pasted) pasted();
  else if (query.get("image") !== null) await fromCollection();
  else if (kept) take(kept);
  else grid.element.dataset.empty = "What you search for shows up here.";
  grid.element.classList.toggle("empty", !grid.ids.length);

  function fromCollection() {
    file = null;
    kept = null;
    const id = Number(query.get("image"));
    canvas.image.dataset.id = id;
    return attempt(async () => {
      remember([await get(`/images/${id}`)]);
      showQuery();
      const box = query.get("left") === null ? null : { left: Number(query.get("left")), top: Number(query.get("top_")), right: Number(query.get("right")), bottom: Number(query.get("bottom")) };
      canvas.setBox(box);
      await search(box);
    });
  }

  function showQuery() {
    const image = detail(Number(canvas.image.dataset.id));
    if (!image) return;
    show(picture(image, 640), image.name);
  }

  function show(source, name) {
    canvas.image.src = source;
    canvas.image.alt = `Searched for: ${name}`;
    asked.hidden = false;
    zone.classList.add("small");
  }

  function take(given) {
    file = kept = given;
    query = new URLSearchParams();
    history.replaceState(null, "", "#/search");
    delete canvas.image.dataset.id;
    show(URL.createObjectURL(given), given.name || "pasted picture");
    canvas.setBox(null);
    search(null);
  }

  function reset() {
    kept = file = null;
    asked.hidden = true;
    zone.classList.remove("small");
    grid.setItems([]);
    grid.element.classList.add("empty");
    tally.textContent = "";
    history.replaceState(null, "", "#/search");
  }

  async function search(box) {
    const mine = ++ticket;
    again.hidden = !box;
    tally.textContent = "Searching …";
    try {
      const id = Number(canvas.image.dataset.id);
      const asking = file ? upload("/search/upload", file, { top: TOP, ...boxQuery(box) }) : get(`/search/image/${id}`, { top: TOP, ...boxQuery(box) });
      const { matches } = await asking;
      if (mine !== ticket) return;
      distances = new Map(matches.map((one) => [one.id, one.distance]));
      grid.setItems(matches.map((one) => one.id));
      grid.element.classList.toggle("empty", !matches.length);
      grid.element.dataset.empty = "Nothing is like it.";
      tally.textContent = `${plural(matches.length, "image")}, nearest first`;
    } catch (error) {
      if (mine !== ticket) return;
      grid.setItems([]); // what is there was found for another picture
      grid.element.classList.add("empty");
      grid.element.dataset.empty = "Nothing was searched for.";
      tally.textContent = error.message;
      if (error.status === 0) fail(error);
    }
  }

  function caption(image) {
    return [...verdict(image), h("small", { class: "distance", title: "distance" }, distances.get(image.id)?.toFixed(2) ?? "")];
  }

  function apply(choice) {
    const ids = grid.targets().length ? grid.targets() : [...grid.selected];
    if (ids.length) label(ids, choice);
  }

  return {
    unmount() {
      stop();
      grid.destroy();
      picker.stop();
      window.removeEventListener("picturepaste", pasted);
    },
    update(next) {
      query = next.query;
      if (query.get("image") !== null) fromCollection();
      return true;
    },
    keydown(event) {
      if (isTyping(event.target)) return false;
      const one = classOfKey(event);
      if (one && grid.targets().length) return apply(one.id), true;
      return document.activeElement === grid.list && grid.keydown(event);
    },
  };
}
