// One image closely: what the model thinks, which patches spoke for and against a class, which images decided.

import { classOfKey, label, skip } from "./actions.js";
import { get, picture } from "./api.js";
import { button, fileName, h, isTyping, percent, sentence } from "./dom.js";
import { boxQuery, Canvas, paintHeat } from "./heat.js";
import { Picker } from "./picker.js";
import { detail, nameOf, on, remember } from "./store.js";
import { refreshTiles, thumbLink, verdict } from "./tile.js";
import { fail } from "./toast.js";

export async function mount(root, address) {
  const id = Number(address.rest[0]);
  let shown = address.query.get("label") === null ? null : Number(address.query.get("label"));
  let explained = null;
  const canvas = new Canvas({ drawn: offerSearch });
  const picker = new Picker({ pick: (choice) => label([id], choice), label: "Label this image" });
  const title = h("h1", { class: "cut" }, "Image");
  const facts = h("p", { class: "soft small" });
  const state = h("div", { class: "row" });
  const heatSwitch = h("input", { type: "checkbox", checked: true, onchange: drawHeat });
  const toggles = h("div", { class: "segments", role: "group", "aria-label": "Explain which class" });
  const note = h("p", { class: "soft small" });
  const sums = h("p", { class: "sums" });
  const voters = h("div", { class: "thumbs" });
  const decided = h("div", { class: "stack", hidden: true }, h("h3", {}, "Labelled images that decided"), h("p", { class: "soft small" }, "What each adds by itself; labels also speak through images without one that are like them."), voters);
  const searchBox = button("Find this part", () => go(canvas.box), { name: "search", kind: "primary" });
  searchBox.hidden = true;
  const bar = h("div", { class: "row wrap" }, button("Back", () => history.back(), { name: "left" }), button("Find alike", () => go(null), { name: "search" }), searchBox, button("Set aside", () => skip([id])));
  const legend = h("div", { class: "legend" }, h("label", { class: "row" }, heatSwitch, "Heat map"), h("span", { class: "key for" }, "for the class"), h("span", { class: "key against" }, "against it"));
  const left = h("section", { class: "image-main", "aria-label": "The image" }, bar, canvas.element, legend, h("p", { class: "soft small" }, "Drag a rectangle in the picture to search for that part."));
  const why = h("section", { class: "card" }, h("h2", {}, "Why?"), toggles, sums, note, decided);
  const side = h("div", { class: "image-side" }, h("section", { class: "card" }, title, facts, state, picker.element), why);
  root.append(h("div", { class: "image-view" }, left, side));
  const stops = [
    on("details classes", () => (drawFacts(), refreshTiles(root))),
    on("model labelled", () => load()),
  ];
  await load();

  async function load() {
    try {
      const image = await get(`/images/${id}`);
      remember([image]);
      picker.setChances(image.probabilities?.length ? image.probabilities : null);
      const source = picture(image, 1600);
      if (canvas.image.dataset.source !== source && !image.broken) {
        canvas.image.dataset.source = source;
        canvas.image.src = source;
        canvas.image.alt = fileName(image.name);
      }
      drawFacts();
      await explain();
    } catch (error) {
      if (error.status === 404 || error.status === 422) showMissing(error);
      else fail(error);
    }
  }

  function showMissing(error) {
    if (!left.isConnected) return; // another view is there
    root.replaceChildren(h("div", { class: "page" }, h("h1", {}, "No such image"), h("p", { class: "hint" }, sentence(error.message), " ", h("a", { href: "#/gallery" }, "All images"))));
  }

  function drawFacts() {
    const image = detail(id);
    if (!image) return;
    title.textContent = fileName(image.name);
    title.title = image.name;
    const size = image.width ? `${image.width} × ${image.height}` : "";
    const votes = image.votes?.length > 1 || image.disagreement ? image.votes.map((vote) => `${vote.who}: ${nameOf(vote.label)}`).join(", ") : "";
    facts.textContent = [image.name.includes("/") ? image.name : "", size, image.broken, votes].filter(Boolean).join(" · ");
    state.replaceChildren(...verdict(image).filter(Boolean));
  }

  async function explain() {
    try {
      explained = await get(`/images/${id}/why`, { label: shown });
    } catch (error) {
      explained = null;
      if (error.status === 0) fail(error);
      note.textContent = sentence(error.message);
      decided.hidden = true;
      toggles.replaceChildren();
      sums.replaceChildren();
      voters.replaceChildren();
      drawHeat();
      return;
    }
    const { runner_up: second, label: first } = explained;
    const image = detail(id);
    const choices = [...new Set([image?.predicted ?? first, second, first].filter((one) => one !== null && one !== undefined))];
    toggles.replaceChildren(
      ...choices.map((one) => {
        const chosen = one === first;
        return h("button", { type: "button", class: "segment", "aria-pressed": String(chosen), onclick: () => ((shown = one), explain()) }, nameOf(one));
      }),
    );
    const spoken = explained.score - explained.base;
    sums.replaceChildren("Score of ", h("b", {}, nameOf(first)), ` ${signed(explained.score)} = patches ${signed(spoken)} + rest ${signed(explained.base)}`, explained.probability === null || explained.probability === undefined ? "" : `; ${percent(explained.probability)}`);
    note.textContent = explained.note ?? "";
    voters.replaceChildren(...(explained.voters ?? []).map(voter));
    decided.hidden = !explained.voters?.length;
    drawHeat();
  }

  function voter(one) {
    const name = h("span", { class: "cut" }, one.label === null || one.label === undefined ? "no label" : nameOf(one.label));
    return thumbLink(one.id, [h("span", { class: "chip" }, name), h("small", { class: one.weight >= 0 ? "good" : "bad" }, signed(one.weight))]);
  }

  function drawHeat() {
    canvas.heat.hidden = !heatSwitch.checked || !explained?.grid;
    if (explained?.grid) paintHeat(canvas.heat, explained.grid);
  }

  function offerSearch(box) {
    searchBox.hidden = !box;
  }

  function go(box) {
    location.hash = `#/search?${new URLSearchParams({ image: id, ...boxQuery(box) })}`;
  }

  window.addEventListener("themechange", drawHeat);
  return {
    unmount() {
      stops.forEach((stop) => stop());
      picker.stop();
      window.removeEventListener("themechange", drawHeat);
    },
    keydown(event) {
      if (isTyping(event.target)) return false;
      const one = classOfKey(event);
      if (one) return label([id], one.id), true;
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      if (event.key === "Escape") return history.back(), true;
      if (event.key.toLowerCase() === "h") return (heatSwitch.checked = !heatSwitch.checked), drawHeat(), true;
      if (event.key === "Delete") return label([id], null), true;
      if (event.key.toLowerCase() === "c") return picker.field.focus(), true;
      return false;
    },
  };
}

const signed = (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(2)}`;
