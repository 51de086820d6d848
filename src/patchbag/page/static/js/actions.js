// What a person does to labels. What was done is shown at once and taken back if the server did not take it.

import { post } from "./api.js";
import { plural, say } from "./dom.js";
import { detail, emit, expire, nameOf, remember, store } from "./store.js";
import { fail, toast } from "./toast.js";

function guess(ids, label) {
  const known = ids.map(detail).filter(Boolean);
  remember(known.map((image) => ({ ...image, label, disagreement: false, pending: true })));
}

async function change(path, body, text) {
  try {
    const answer = await post(path, body);
    expire(body.ids);
    emit("labelled", { ids: body.ids, label: answer.label ?? null });
    const message = text(answer);
    if (message) toast(message, { undo: true });
    return answer;
  } catch (error) {
    expire(body.ids);
    emit("labelled", { ids: body.ids, label: null });
    fail(error);
    return null;
  }
}

/** A label for images: the id of a class, the name of a known or new one, or null for none. */
export function label(ids, choice) {
  if (!ids.length) return null;
  const known = typeof choice === "string" ? store.state.classes.find((one) => one.name === choice)?.id : choice;
  if (known !== undefined) guess(ids, known);
  const body = typeof choice === "string" ? { ids, name: choice } : { ids, label: choice };
  const name = typeof choice === "string" ? choice : choice === null ? null : nameOf(choice);
  return change("/labels", body, () => (name === null ? `No label: ${plural(ids.length, "image")}` : `${name}: ${plural(ids.length, "image")}`));
}

/** Every image gets the class that the model expects. */
export function accept(ids) {
  return change("/labels/accept", { ids }, (answer) => `Accepted ${plural(answer.changed, "guess", "guesses")}`);
}

export function skip(ids) {
  return change("/skip", { ids }, () => `Set aside: ${plural(ids.length, "image")}`);
}

/** The labels of these images are right, whatever the model thinks. */
export function confirm(ids) {
  return change("/check/confirm", { ids }, () => `Kept: ${plural(ids.length, "label")}`);
}

export function keepOne(keep, ids) {
  return change("/check/keep", { keep, ids }, () => `Kept one, set aside ${plural(ids.length - 1, "copy", "copies")}`);
}

async function step(path, said) {
  try {
    const answer = await post(path);
    expire(answer.ids ?? null);
    emit("labelled", { ids: answer.ids ?? null, label: null });
    emit("stepped", { path, ...answer });
    const clash = answer.conflicts ? ` (${plural(answer.conflicts, "image")} kept a newer label)` : "";
    toast(`${said}: ${answer.text}${clash}`);
    return answer;
  } catch (error) {
    if (error.status === 409) say("Nothing there");
    else fail(error);
    return null;
  }
}

export const undo = () => step("/undo", "Undone");
export const redo = () => step("/redo", "Done again");

/** The class whose key this is. */
export function classOfKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  return store.state.classes.find((one) => one.key && one.key.toLowerCase() === event.key.toLowerCase()) ?? null;
}
