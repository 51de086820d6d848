// Labels, sorted folders, a trained model, the report; and labels from other tools.

import { get, post, upload } from "./api.js";
import { button, h, plural } from "./dom.js";
import { emit, on, store } from "./store.js";
import { attempt, confirm, toast } from "./toast.js";

const HOW = [
  ["copy", "Copy", "Each image is copied to a folder named as its class."],
  ["link", "Link", "The same with links: no space is used."],
  ["move", "Move", "The files themselves are moved. Undo moves them back."],
];
const IMPORTS = [
  ["labelstudio", "Label Studio JSON", ".json"],
  ["coco", "COCO JSON", ".json"],
  ["csv", "CSV: image, label", ".csv"],
];

export async function mount(root) {
  const made = h("div", { class: "stack" });
  const download = (name, text) => h("a", { class: "button", href: `/api/export/${name}`, download: name }, text);
  const card = (title, text, ...content) => h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "soft" }, text), ...content);
  const labels = card("Labels", "What people gave, one line per image; predictions.csv has all images, with the model's guesses and how likely they are.", h("div", { class: "row wrap" }, download("labels.csv", "labels.csv"), download("predictions.csv", "predictions.csv"), download("labelstudio.json", "Label Studio"), download("coco.json", "COCO"), button("Write labels.csv into the folder", write)));
  const folders = card("Sorted folders", "Images with a label, in one folder per class, as other tools read them.", h("div", { class: "choices" }, HOW.map(([how, name, text]) => h("div", { class: "choice" }, button(name, () => sort(how, text), { kind: how === "copy" ? "primary" : "" }), h("span", { class: "soft" }, text)))));
  const trained = card("Model and report", "The model sorts other folders: patchbag predict. The report is one HTML file.", made);
  const incoming = card("Labels from elsewhere", "Images are found by their name. One undo takes an import back.", h("div", { class: "row wrap" }, IMPORTS.map(importer)));
  root.append(h("div", { class: "page" }, h("h1", {}, "Out"), h("div", { class: "cards two" }, labels, folders, trained, incoming)));
  const stop = on("progress", ({ done, total }) => done >= total && refresh());
  const timer = setInterval(() => made.dataset.running && refresh(), 1500);
  await refresh();

  function refresh() {
    return attempt(async () => {
      const state = await get("/export");
      delete made.dataset.running;
      made.replaceChildren(...[["model", "Train a model", "Download the model"], ["report", "Make the report", "Open the report"]].map((entry) => product(state[entry[0]], ...entry)));
    });
  }

  function product(state, name, make, fetch) {
    if (state.running) made.dataset.running = "yes";
    const start = button(state.running ? "Working …" : state.ready ? `${make} anew` : make, () => begin(name), { kind: state.ready ? "" : "primary" });
    start.disabled = state.running;
    const link = state.ready && !state.running ? h("a", { class: "button primary", href: `/api/export/${name}`, download: name === "model" ? "model.patchbag" : "report.html" }, fetch) : null;
    return h("div", { class: "row wrap" }, start, link, state.error ? h("span", { class: "bad" }, state.error) : null);
  }

  function begin(name) {
    return attempt(async () => {
      await post(`/export/${name}`);
      await refresh();
    });
  }

  function write() {
    return attempt(async () => {
      const done = await post("/export/labels");
      toast(`Wrote ${plural(done.labels, "label")} to ${done.path}`);
    });
  }

  async function sort(how, text) {
    if (!(await confirm(`Sort ${plural(store.state.labelled, "image")} into folders?`, text, how === "move" ? "Move them" : "Go"))) return;
    await attempt(async () => {
      const done = await post("/export/folder", { how });
      toast(`${plural(done.files, "file")} in ${done.path}`, { undo: true });
    });
  }

  function importer([kind, name, ends]) {
    const chooser = h("input", { type: "file", accept: ends, class: "unseen", tabindex: "-1", "aria-label": name });
    chooser.addEventListener("change", async () => {
      const file = chooser.files[0];
      chooser.value = "";
      if (!file) return;
      await attempt(async () => {
        const done = await upload(`/import/${kind}`, file);
        toast(`${plural(done.labels, "label")} read${done.unknown ? `, ${plural(done.unknown, "image")} not found` : ""}`, { undo: true });
        emit("labelled", { ids: null, label: null });
      });
    });
    return [button(name, () => chooser.click()), chooser];
  }

  return {
    unmount() {
      stop();
      clearInterval(timer);
    },
  };
}
