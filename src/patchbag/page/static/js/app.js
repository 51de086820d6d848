// The frame: views by address (#/gallery, #/ask, …), keys for all of them, undo, colours, progress.

import { put } from "./api.js";
import { redo, undo } from "./actions.js";
import { button, count, h, icon, isTyping, percent, plural, say } from "./dom.js";
import { showHelp } from "./help.js";
import { on, setState, start, store } from "./store.js";
import { isDark } from "./theme-state.js";
import { attempt, fail, question, toast } from "./toast.js";

const VIEWS = {
  gallery: ["Gallery", () => import("./gallery.js")],
  ask: ["Ask me", () => import("./ask.js")],
  check: ["Check", () => import("./check.js")],
  search: ["Search", () => import("./search.js")],
  map: ["Map", () => import("./map.js")],
  classes: ["Classes", () => import("./classes.js")],
  out: ["Out", () => import("./out.js")],
  image: ["Image", () => import("./image.js")],
};

const root = document.getElementById("view");
let view = null;
let turn = 0;

export function parseAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  return { name: VIEWS[name] ? name : "gallery", rest: rest.map(decodeURIComponent), query: new URLSearchParams(query) };
}

async function route() {
  const mine = ++turn;
  const address = parseAddress();
  if (view && view.name === address.name && view.update?.(address)) return;
  view?.unmount?.();
  view = null;
  const [title, load] = VIEWS[address.name];
  document.title = `${title} · ${store.state?.folder ?? ""} · patchbag`;
  document.querySelectorAll(".tabs a").forEach((link) => {
    if (link.dataset.view === address.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  try {
    const module = await load();
    if (mine !== turn) return;
    root.className = `view view-${address.name}`;
    root.replaceChildren();
    const made = (await module.mount(root, address)) ?? {};
    if (mine !== turn) {
      made.unmount?.(); // another view was opened meanwhile, and has the keys
      return;
    }
    view = Object.assign(made, { name: address.name });
    if (!root.contains(document.activeElement)) root.focus({ preventScroll: true });
  } catch (error) {
    fail(error);
  }
}

function keydown(event) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const control = event.ctrlKey || event.metaKey;
  const key = event.key.toLowerCase();
  if (isTyping(event.target)) return;
  if (control && key === "z") {
    event.preventDefault();
    (event.shiftKey ? redo : undo)();
  } else if (control && key === "y") {
    event.preventDefault();
    redo();
  } else if (view?.keydown?.(event)) event.preventDefault();
  else if (event.key === "?" && !control) showHelp();
}

function makeTabs() {
  const tabs = Object.entries(VIEWS).filter(([name]) => name !== "image");
  document.querySelector(".tabs").append(
    ...tabs.map(([name, [title]]) => h("a", { href: `#/${name}`, dataset: { view: name } }, icon(name), h("span", {}, title))),
  );
}

function makeTools() {
  const back = button("", undo, { name: "undo", kind: "quiet", label: "Undo" });
  const forth = button("", redo, { name: "redo", kind: "quiet", label: "Redo" });
  const tally = h("span", { class: "tally" });
  const who = button("me", rename, { name: "person", kind: "quiet who", label: "Your name" });
  const theme = button("", switchTheme, { kind: "quiet", label: "Light or dark" });
  const help = button("", showHelp, { name: "help", kind: "quiet help", label: "Keys and help", title: "Keys (?)" });
  document.querySelector(".tools").append(tally, back, forth, who, theme, help);
  const paint = () => theme.replaceChildren(icon(isDark() ? "light" : "dark"));
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

  function switchTheme() {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("patchbag-theme", next);
    } catch {
      // it lasts as long as the page, then
    }
    paint();
    say(`${next} colours`);
    window.dispatchEvent(new Event("themechange"));
  }

  on("state", (state) => {
    back.disabled = !state.can_undo;
    forth.disabled = !state.can_redo;
    back.title = state.undo ? `Undo: ${state.undo} (Ctrl+Z)` : "Nothing to undo";
    forth.title = state.redo ? `Redo: ${state.redo} (Ctrl+Shift+Z)` : "Nothing to redo";
    who.lastChild.textContent = state.me;
    const share = state.images ? state.labelled / state.images : 0;
    tally.replaceChildren(h("b", {}, count(state.labelled)), ` of ${count(state.images)} labelled`);
    tally.title = `${percent(share)} labelled by hand; ${plural(state.broken, "file")} cannot be read`;
  });
}

async function rename() {
  const name = await question("Your name", { value: store.state.me, action: "Use it", hint: "Undo and questions are yours; others see who gave a label." });
  if (!name) return;
  await attempt(async () => setState(await put("/me", { name })));
}

function showProgress() {
  const bar = document.querySelector(".progress");
  const work = [...store.progress.values()][0];
  bar.hidden = !work;
  if (!work) return;
  const share = work.total ? work.done / work.total : 0;
  bar.setAttribute("aria-valuenow", Math.round(100 * share));
  bar.setAttribute("aria-valuetext", `${work.stage}, ${work.done} of ${work.total}`);
  bar.firstChild.style.transform = `scaleX(${share})`;
  bar.dataset.text = `${work.stage} · ${count(work.done)} of ${count(work.total)}`;
}

function watch() {
  let away = false;
  on("connection", (lost) => {
    if (lost && !away) toast("The connection to the server is lost; trying again.", { kind: "bad" });
    if (!lost && away) toast("Connected again.");
    away = lost;
  });
  on("problem", fail);
  on("undo", undo);
  on("progress", showProgress);
  on("labels", ({ ids, who, label }) => {
    if (who && who !== store.state.me && label !== undefined) say(`${who} labelled ${ids ? plural(ids.length, "image") : "many images"}`);
  });
}

makeTabs();
makeTools();
watch();
document.addEventListener("keydown", keydown);
window.addEventListener("hashchange", route);
for (const type of ["dragover", "drop"]) {
  // a picture that misses its target must not replace the page
  window.addEventListener(type, (event) => event.preventDefault());
}
window.addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
  if (!file || isTyping(event.target)) return;
  store.pasted = file;
  if (parseAddress().name === "search") window.dispatchEvent(new Event("picturepaste"));
  else location.hash = "#/search";
});
start().then(route, (error) => {
  root.replaceChildren(h("p", { class: "hint bad" }, error.message));
});
