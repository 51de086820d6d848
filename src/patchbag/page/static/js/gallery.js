// All images: filters, order, groups, many labels at once.

import { accept, classOfKey, label, skip } from "./actions.js";
import { get } from "./api.js";
import { button, count, h, isTyping, plural, say, throttle } from "./dom.js";
import { Grid } from "./grid.js";
import { Picker } from "./picker.js";
import { classes, classOf, on } from "./store.js";
import { dot } from "./tile.js";
import { attempt, confirm, toast } from "./toast.js";

const FILTERS = [
  ["", "All images"],
  ["unlabelled", "Without a label"],
  ["labelled", "With a label"],
  ["doubtful", "Doubtful"],
  ["wrong", "Model disagrees with the label"],
  ["disagree", "People disagree"],
  ["skipped", "Set aside"],
  ["broken", "Cannot be read"],
];
const SORTS = [
  ["name", "Name"],
  ["doubt", "Doubt"],
  ["confidence", "Confidence"],
  ["date", "Date"],
];
const GROUPS = [
  ["", "No groups"],
  ["predicted", "By expected class"],
  ["label", "By label"],
];
const GUESS = "guess"; // instead of a class: for every image its own
const SURE = 200; // images from which "accept all" asks first

function choice(name, options, value, changed) {
  const select = h("select", { class: "field", "aria-label": name, onchange: () => changed(select.value) });
  select.append(...options.map(([key, text]) => h("option", { value: key }, text)));
  select.value = value;
  return select;
}

export async function mount(root, address) {
  let query = address.query;
  let ticket = 0;
  const tell = throttle((n) => say(`${plural(n, "image")} selected`), 500);
  const grid = new Grid({ label: "Images", head, open, changed: showSelection });
  const picker = new Picker({ pick: (chosen) => apply(chosen), label: "Label the selection", counts: true });
  const tally = h("span", { class: "tally-shown", role: "status" });
  const fresh = button("Order has changed", () => load(true), { name: "refresh", kind: "quiet small" });
  const acceptAll = h("select", { class: "field accept", onchange: () => acceptShown() });
  const selection = h("div", { class: "selection", hidden: true });
  const size = h("input", { type: "range", min: 88, max: 320, value: restoreSize(), "aria-label": "Size of the pictures", class: "range" });
  size.addEventListener("input", () => (grid.setSide(Number(size.value)), keepSize(size.value)));
  const text = h("input", { type: "search", class: "field name-filter", placeholder: "Name has …", "aria-label": "Part of the name" });
  text.addEventListener("input", throttle(() => set({ text: text.value }), 250));
  const controls = h("div", { class: "controls" });
  const bar = h("div", { class: "toolbar", role: "group", "aria-label": "Filter and order" }, controls, h("div", { class: "row" }, tally, fresh, acceptAll, size));
  const side = h("aside", { class: "dock", "aria-label": "Classes" }, h("h2", {}, "Label"), h("p", { class: "soft small" }, "Select images, then press a key or choose a class."), picker.element);
  root.append(h("h1", { class: "unseen" }, "Gallery"), h("div", { class: "gallery" }, h("div", { class: "gallery-main" }, bar, grid.element, selection), side));
  grid.setSide(Number(size.value));
  fresh.hidden = true;

  const stops = [
    on("classes", () => (drawControls(), drawAccept())),
    on("labelled", afterLabels),
    on("model", () => (fresh.hidden = !dependsOnModel())),
    on("images", () => load(true)),
    on("labels", ({ ids }) => ids === null && load(true)),
  ];
  drawControls();
  drawAccept();
  await load(false);
  grid.list.focus({ preventScroll: true });

  function drawControls() {
    const kinds = [...classes().map((one) => [`label:${one.id}`, `Labelled ${one.name}`]), ...classes().map((one) => [`predicted:${one.id}`, `Expected ${one.name}`])];
    const current = query.get("label") !== null ? `label:${query.get("label")}` : query.get("predicted") !== null ? `predicted:${query.get("predicted")}` : (query.get("filter") ?? "");
    const filter = choice("Which images", [...FILTERS, ...kinds], current, (value) => {
      const [kind, id] = value.split(":");
      set({ filter: id === undefined ? kind : null, label: kind === "label" ? id : null, predicted: kind === "predicted" ? id : null });
    });
    const sorts = query.get("to") !== null ? [...SORTS, ["similarity", "Likeness"]] : SORTS;
    const sort = choice("Order", sorts, query.get("sort") ?? "name", (value) => set({ sort: value === "name" ? null : value }));
    const group = choice("Groups", GROUPS, query.get("group") ?? "", (value) => set({ group: value }));
    if (document.activeElement !== text) text.value = query.get("text") ?? "";
    controls.replaceChildren(filter, sort, group, text);
  }

  function set(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (value) query.set(key, value);
      else query.delete(key);
    }
    if (query.get("sort") !== "similarity") query.delete("to");
    history.replaceState(null, "", `#/gallery${query.size ? `?${query}` : ""}`);
    drawControls();
    load(false);
  }

  function load(keep) {
    const mine = ++ticket;
    return attempt(async () => {
      const found = await get("/images", Object.fromEntries([...new Set(query.keys())].map((key) => [key, query.getAll(key)])));
      if (mine !== ticket) return;
      fresh.hidden = true;
      grid.setItems(found.ids, found.groups, { keep });
      grid.element.classList.toggle("empty", !found.ids.length);
      grid.element.dataset.empty = "No image matches. Choose another filter above.";
      tally.textContent = plural(found.total ?? found.ids.length, "image");
      drawAccept();
    });
  }

  function dependsOnModel() {
    return ["doubt", "confidence", "predicted"].includes(query.get("sort")) || query.get("group") === "predicted" || ["doubtful", "wrong"].includes(query.get("filter")) || query.has("predicted");
  }

  function afterLabels() {
    const moves = ["unlabelled", "labelled", "skipped", "disagree", "wrong"].includes(query.get("filter")) || query.has("label") || query.get("group") === "label";
    if (moves) load(true);
  }

  function head(group) {
    const one = classOf(group.label);
    const name = one ? one.name : query.get("group") === "label" ? "Without a label" : "Not expected yet";
    const members = () => grid.ids.slice(group.start, group.start + group.count);
    const all = () => button("Accept all", () => acceptAs(members(), one), { kind: "quiet small", label: `Accept all as ${one.name}` });
    const pick = button("Select", () => grid.select(members()), { kind: "quiet small", label: `Select the group ${name}` });
    return [dot(one?.color), h("b", { class: "cut" }, name), h("span", { class: "soft" }, count(group.count)), h("span", { class: "fill" }), pick, one && query.get("group") === "predicted" ? all() : null];
  }

  // a label that a person gave is not overwritten by a guess
  async function withoutLabel(ids) {
    const open = new Set((await get("/images", { filter: "unlabelled" })).ids);
    return ids.filter((id) => open.has(id));
  }

  function acceptMany(shown, what, work) {
    return attempt(async () => {
      const ids = await withoutLabel(shown);
      if (!ids.length) return toast("All of these have a label already.");
      const question = `Label ${plural(ids.length, "image")} ${what}?`;
      if (ids.length > SURE && !(await confirm(question, "Labels that people gave stay. One undo takes all of it back.", "Label them"))) return;
      await work(ids);
      grid.select([]);
      grid.list.focus({ preventScroll: true }); // keys are for the images again
    });
  }

  const acceptAs = (ids, one) => acceptMany(ids, `“${one.name}”`, (open) => label(open, one.id));

  function acceptShown() {
    const shown = grid.selected.size ? grid.targets() : grid.ids;
    const chosen = acceptAll.value;
    acceptAll.value = "";
    if (chosen === GUESS) acceptMany(shown, "as the model expects", accept);
    else acceptAs(shown, classOf(Number(chosen)));
  }

  function drawAccept() {
    const n = grid.selected.size;
    const title = n ? `Accept ${plural(n, "image")} as …` : "Accept all shown as …";
    const choices = [["", n ? title : "Accept all as …"], [GUESS, "the model expects"], ...classes().map((one) => [one.id, one.name])];
    acceptAll.setAttribute("aria-label", title);
    acceptAll.replaceChildren(...choices.map(([value, text]) => h("option", { value }, text)));
    acceptAll.hidden = !grid.ids.length || !classes().length;
  }

  function showSelection() {
    const n = grid.selected.size;
    if (n) tell(n);
    selection.hidden = n === 0;
    drawAccept();
    if (!n) return;
    const ids = grid.targets();
    selection.replaceChildren(
      h("b", {}, `${count(n)} selected`),
      button("Look closely", () => open(ids[0]), { name: "open", kind: "quiet small" }),
      button("Find alike", () => (location.hash = `#/search?image=${ids[0]}`), { name: "search", kind: "quiet small" }),
      button("Order by likeness", () => set({ sort: "similarity", to: String(ids[0]), group: null }), { kind: "quiet small" }),
      button("Set aside", () => skip(ids).then(() => grid.advance()), { kind: "quiet small" }),
      button("No label", () => apply(null), { kind: "quiet small" }),
      h("span", { class: "fill" }),
      button("", () => grid.select([]), { name: "close", kind: "quiet small", label: "Select none" }),
    );
  }

  function apply(chosen) {
    const ids = grid.targets().length ? grid.targets() : [...grid.selected];
    if (!ids.length) {
      say("Nothing is selected");
      return;
    }
    label(ids, chosen);
    grid.advance();
  }

  function open(id) {
    location.hash = `#/image/${id}`;
  }

  return {
    unmount() {
      stops.forEach((stop) => stop());
      grid.destroy();
      picker.stop();
    },
    update(next) {
      query = next.query;
      drawControls();
      load(false);
      return true;
    },
    keydown(event) {
      if (isTyping(event.target)) return false;
      const one = classOfKey(event);
      if (one && grid.targets().length) {
        apply(one.id);
        return true;
      }
      if (grid.list === document.activeElement || document.activeElement === root || document.activeElement === document.body) {
        if (grid.keydown(event)) return true;
      }
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      if (event.key === "Delete") return apply(null), true;
      if (event.key.toLowerCase() === "c") return picker.field.focus(), true;
      if (event.key === "/") return text.focus(), true;
      return false;
    },
  };
}

function restoreSize() {
  try {
    return Number(localStorage.getItem("patchbag-size")) || 168;
  } catch {
    return 168;
  }
}

function keepSize(size) {
  try {
    localStorage.setItem("patchbag-size", size);
  } catch {
    // the size lasts as long as the page
  }
}
