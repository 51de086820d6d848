// The classes: names, colours, keys; merging, splitting, removing.

import { get, patch, post, remove } from "./api.js";
import { button, count, h, plural } from "./dom.js";
import { classes, emit, nameOf, on, setState, store } from "./store.js";
import { refreshTiles, thumbLink } from "./tile.js";
import { attempt, confirm, fail, question, toast } from "./toast.js";

export function mount(root) {
  const body = h("tbody");
  const head = h("tr", {}, ["Colour", "Key", "Name", "Labelled", "Expected", ""].map((text) => h("th", { scope: "col" }, text || h("span", { class: "unseen" }, "Actions"))));
  const table = h("table", { class: "classes" }, h("thead", {}, head), body);
  const add = button("Add a class", create, { kind: "primary" });
  const empty = h("p", { class: "hint" }, "There are no classes yet. Name one here, or answer the first question in “Ask me”.");
  const proposal = h("section", { class: "card", hidden: true });
  root.append(h("div", { class: "page" }, h("header", { class: "row wrap" }, h("h1", {}, "Classes"), h("span", { class: "fill" }), add), h("section", { class: "card scroll" }, empty, table), proposal));
  const stops = [on("classes state", draw), on("details", () => refreshTiles(proposal))];
  draw();

  async function send(asking, said) {
    try {
      const answer = await asking;
      if (answer?.classes) setState({ ...store.state, classes: answer.classes });
      if (said) toast(said, { undo: true });
      emit("labelled", { ids: null, label: null });
      draw(true);
      return answer;
    } catch (error) {
      fail(error);
      draw(true);
      return null;
    }
  }

  function draw(force = false) {
    empty.hidden = classes().length > 0;
    table.hidden = !empty.hidden;
    const typing = body.contains(document.activeElement) && document.activeElement instanceof HTMLInputElement;
    if (typing && force !== true) return;
    const held = body.contains(document.activeElement) ? document.activeElement.dataset.cell : null;
    body.replaceChildren(...classes().map(row));
    if (held) body.querySelector(`[data-cell="${held}"]`)?.focus();
  }

  function row(one) {
    const change = (what) => (event) => send(patch(`/classes/${one.id}`, { [what]: event.target.value.trim() }));
    const colour = h("input", { type: "color", dataset: { cell: `color-${one.id}` }, value: one.color, "aria-label": `Colour of ${one.name}`, onchange: change("color") });
    const key = h("input", { type: "text", dataset: { cell: `key-${one.id}` }, class: "field key-field", maxlength: 1, value: one.key ?? "", "aria-label": `Key of ${one.name}`, onchange: change("key") });
    const name = h("input", { type: "text", dataset: { cell: `name-${one.id}` }, class: "field", maxlength: 200, value: one.name, "aria-label": `Name of ${one.name}` });
    name.addEventListener("change", () => (name.value.trim() && name.value.trim() !== one.name ? rename(one, name.value.trim()) : draw(true)));
    const link = (kind, n) => h("a", { href: `#/gallery?${kind}=${one.id}`, "aria-label": `${count(n)} ${kind === "label" ? "labelled" : "expected"} ${one.name}` }, count(n));
    const others = classes().filter((other) => other.id !== one.id);
    const into = h("select", { class: "field", "aria-label": `Merge ${one.name} into`, onchange: (event) => merge(one, Number(event.target.value)) });
    into.append(h("option", { value: "" }, "Merge into …"), ...others.map((other) => h("option", { value: other.id }, other.name)));
    const acts = h("div", { class: "row" }, into, button("Split", () => split(one), { kind: "quiet", label: `Split ${one.name}` }), button("", () => drop(one), { name: "trash", kind: "quiet", label: `Remove ${one.name}` }));
    return h("tr", {}, h("td", {}, colour), h("td", {}, key), h("td", { class: "wide" }, name), h("td", { class: "number" }, link("label", one.count)), h("td", { class: "number" }, link("predicted", one.predicted ?? 0)), h("td", {}, acts));
  }

  async function create() {
    const name = await question("Add a class", { action: "Add" });
    if (name) await send(post("/classes", { name }), `New class ${name}`);
  }

  function rename(one, name) {
    if (classes().some((other) => other.name === name)) {
      fail(new Error(`There is a class “${name}” already; merge them instead.`));
      draw(true);
    } else send(patch(`/classes/${one.id}`, { name }), `${one.name} is now ${name}`);
  }

  async function merge(one, into) {
    const agreed = await confirm(`Merge “${one.name}” into “${nameOf(into)}”?`, `${plural(one.count, "image")} will be ${nameOf(into)}. Undo takes it back.`, "Merge");
    if (agreed) await send(post(`/classes/${one.id}/merge`, { into }), `Merged ${one.name}`);
    draw(true);
  }

  async function drop(one) {
    const agreed = await confirm(`Remove “${one.name}”?`, `Its ${plural(one.count, "image")} will have no label. Undo takes it back.`, "Remove");
    if (agreed) await send(remove(`/classes/${one.id}`), `Removed ${one.name}`);
  }

  function split(one) {
    return attempt(async () => {
      const { parts } = await post(`/classes/${one.id}/split`, { name: "?", parts: 2 });
      proposal.hidden = false;
      const boxes = parts.map((ids, i) => {
        const take = async () => {
          const name = await question(`Name of part ${i + 1}`, { action: "Make it a class" });
          if (name && (await send(post(`/classes/${one.id}/split`, { name, ids }), `${plural(ids.length, "image")} are now ${name}`))) proposal.hidden = true;
        };
        return h("div", { class: "part" }, h("div", { class: "row" }, h("h3", {}, `Part ${i + 1}: ${plural(ids.length, "image")}`), button("Make it a class", take, { kind: "primary small" })), h("div", { class: "thumbs" }, ids.slice(0, 12).map((id) => thumbLink(id))));
      });
      proposal.replaceChildren(h("h2", {}, "Split ", one.name), h("p", { class: "soft" }, "By how its images look. Or select images in the gallery and give them another label."), ...boxes, button("Leave it", () => (proposal.hidden = true)));
      proposal.scrollIntoView({ behavior: "smooth" });
    });
  }

  get("/classes").then((found) => setState({ ...store.state, classes: found.classes }), fail);
  return { unmount: () => stops.forEach((stop) => stop()) };
}
