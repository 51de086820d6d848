// What the page knows: the state, and details of images, fetched in batches when they are looked at.

import { get, listen } from "./api.js";
import { throttle } from "./dom.js";

const BATCH = 120; // at most, in one question to the server: a screen
const KEPT = 20000;
const SMALL = 2000; // small pictures that are kept

export const bus = new EventTarget();
export const emit = (type, detail) => bus.dispatchEvent(new CustomEvent(type, { detail }));

/** Listen until `stop()`; several types share one handler. */
export function on(types, handler) {
  const listener = (event) => handler(event.detail, event.type);
  const names = types.split(" ");
  names.forEach((name) => bus.addEventListener(name, listener));
  return () => names.forEach((name) => bus.removeEventListener(name, listener));
}

export const store = { state: null, details: new Map(), progress: new Map(), curve: [] };

const smalls = new Map(); // {v, source} by image, null for one that has to be fetched by its address
const stale = new Set();
const wanted = new Set();
const asked = new Set();
let timer = null;

export const classes = () => store.state?.classes ?? [];
export const classOf = (id) => classes().find((one) => one.id === id) ?? null;
export const nameOf = (id) => classOf(id)?.name ?? "—";
export const detail = (id) => store.details.get(id) ?? null;

/** The small picture of an image; undefined where it is not known yet. */
export const smallOf = (id) => smalls.get(id);

/** Details and small pictures of these images, with an event "details" where they come. */
export function need(ids) {
  for (const id of ids) {
    if ((!store.details.has(id) || stale.has(id) || !smalls.has(id)) && !asked.has(id)) wanted.add(id);
  }
  if (wanted.size && timer === null) timer = setTimeout(fetchWanted, 0);
}

async function fetchWanted() {
  timer = null;
  const unseen = [...wanted].filter((id) => !smalls.has(id));
  const ids = (unseen.length ? unseen : [...wanted]).slice(-BATCH); // the latest are what is on the screen
  if (!ids.length) return;
  ids.forEach((id) => {
    wanted.delete(id);
    asked.add(id);
    stale.delete(id);
  });
  if (wanted.size) timer = setTimeout(fetchWanted, 0);
  try {
    const { images, thumbs } = await get("/images/details", { ids: ids.join(","), thumbs: unseen.length ? 1 : null });
    if (unseen.length) keepSmalls(images, thumbs);
    remember(images);
  } catch (error) {
    emit("problem", error);
  } finally {
    ids.forEach((id) => asked.delete(id));
    const again = ids.filter((id) => stale.has(id)); // they changed while they were on their way
    if (again.length) emit("stale", again);
  }
}

function keepSmalls(images, thumbs) {
  for (const { id, v } of images) smalls.set(id, thumbs[id] ? { v, source: `data:image/jpeg;base64,${thumbs[id]}` } : null);
  for (const id of smalls.keys()) {
    if (smalls.size <= SMALL) break;
    smalls.delete(id);
  }
}

/** Keep details of images; the longest unused go. */
export function remember(images) {
  for (const image of images) {
    store.details.delete(image.id);
    store.details.set(image.id, image);
  }
  for (const id of store.details.keys()) {
    if (store.details.size <= KEPT) break;
    store.details.delete(id);
  }
  emit("details", images.map((image) => image.id));
}

/** Images that scrolled away before their details were asked for need not be asked for. */
export function forgetWanted() {
  wanted.clear();
}

/** What is known of these images (of all: null) is old; it is shown until the new comes. */
export function expire(ids) {
  for (const id of ids ?? store.details.keys()) stale.add(id);
  emit("stale", ids);
}

export function setState(state) {
  const old = store.state;
  store.state = state;
  emit("state", state);
  if (!old || JSON.stringify(old.classes) !== JSON.stringify(state.classes)) emit("classes", state.classes);
}

function handle(type, data) {
  if (type === "state") setState({ ...store.state, ...data });
  else if (type === "classes") setState({ ...store.state, classes: data.classes });
  else if (type === "labels") {
    expire(data.ids);
    emit("labels", data);
  } else if (type === "images") {
    expire([...(data.renamed ?? []), ...(data.gone ?? [])]);
    emit("images", data);
  } else if (type === "model") {
    expire(null);
    emit("model", data);
  } else if (type === "notice") emit("problem", new Error(data.text));
  else if (type === "progress") {
    if (data.total && data.done >= data.total) store.progress.delete(data.stage);
    else store.progress.set(data.stage, data);
    emit("progress", data);
  }
}

// what only concerns this person (undo, the name) does not come with the events
const ownState = throttle(() => get("/state").then(setState, (error) => emit("problem", error)), 150);
on("labelled stepped", ownState);

export async function start() {
  setState(await get("/state"));
  listen(handle, (lost) => emit("connection", lost));
}
