// One question after the other: the image that helps most, large, and the classes as keys and bars.

import { classOfKey, undo } from "./actions.js";
import { get, picture, post } from "./api.js";
import { curve } from "./curve.js";
import { button, count, fileName, h, isTyping, percent, say } from "./dom.js";
import { Picker } from "./picker.js";
import { classOf, emit, on, remember, store } from "./store.js";
import { attempt, fail } from "./toast.js";

const AGAIN = 1000; // milliseconds until a question is asked for again while there is none

export async function mount(root) {
  let current = null;
  let busy = false;
  let timer = null;
  let gone = false;
  let points = [];
  let news = null; // of the model
  const picker = new Picker({ pick: answer, label: "Which class is it?" });
  const stage = h("div", { class: "stage" });
  const ahead = new Map(); // pictures that probably come next, fetched and decoded, by address
  const why = h("p", { class: "why", "aria-live": "polite" });
  const file = h("p", { class: "soft small cut" });
  const actions = h(
    "div",
    { class: "row wrap" },
    button("Set aside", () => answer(null), { kind: "", title: "Space" }),
    button("Back", back, { name: "undo", title: "Backspace" }),
    button("Why?", reasons, { name: "heat", title: "W" }),
  );
  const figures = h("div", { class: "figures" });
  const chart = h("div", { class: "chart" });
  const hint = h("p", { class: "stop-hint", role: "status" });
  const main = h("section", { class: "ask-main", "aria-label": "The image" }, stage, h("div", { class: "ask-under" }, why, file));
  const answers = h("section", { class: "card ask-answers", "aria-label": "Answers" }, h("h1", {}, "Which class is it?"), picker.element, actions);
  const standing = h("section", { class: "card ask-standing", "aria-label": "How far we are" }, figures, chart, hint);
  root.append(h("div", { class: "ask" }, main, answers, standing));

  const stops = [
    on("model images", () => !current?.image && next()),
    on("model", (now) => {
      news = now;
      points = points.filter((one) => one.labels <= now.n_labels);
      if (now.accuracy) addPoint(now.accuracy);
      drawStanding();
    }),
    on("stepped", ({ path, ids }) => (path === "/undo" && ids?.length === 1 ? askAgain(ids[0]) : next())),
  ];
  get("/ask/curve").then((found) => ((points = found.points), drawStanding()), fail);
  await next();

  function next() {
    return attempt(async () => show(await get("/ask")));
  }

  // an answer that was taken back is wanted anew
  function askAgain(id) {
    return attempt(async () => {
      const image = await get(`/images/${id}`);
      show({ ...current, image, probabilities: image.probabilities, why: "You took this answer back." });
    });
  }

  // since: when the answer before it was given, for what a person waits for: from the key to the next picture
  function show(question, since = null) {
    if (gone) return;
    current = question;
    clearTimeout(timer);
    answers.classList.toggle("waiting", !question.image);
    main.classList.toggle("waiting", !question.image);
    picker.setChances(question.probabilities?.length ? question.probabilities : null);
    picker.flash(null);
    const wait = question.image ? showImage(question) : showNothing(question);
    if (since !== null) wait.then(() => performance.measure("answer to next question", { start: since }));
    // the person waits for the picture and the bars; all else comes behind them
    wait.then(() => setTimeout(() => question === current && showRest(question), 0));
  }

  function showRest(question) {
    if (gone) return;
    if (question.accuracy && !(news?.n_labels >= question.accuracy.labels)) addPoint(question.accuracy);
    drawStanding();
    const soon = question.next ?? [];
    const kept = new Set([question.image, ...soon].filter(Boolean).map((one) => (pictureOf(one), picture(one, side()))));
    for (const address of ahead.keys()) if (!kept.has(address)) ahead.delete(address);
  }

  function pictureOf(one) {
    const address = picture(one, side());
    if (!ahead.has(address)) {
      const made = h("img", { class: "asked", alt: `The image in question, ${fileName(one.name)}`, src: address, dataset: { id: one.id } });
      made.decode().catch(() => {});
      ahead.set(address, made);
    }
    return ahead.get(address);
  }

  function showImage(question) {
    remember([question.image]);
    why.textContent = question.why ?? "";
    file.textContent = question.image.name;
    file.title = question.image.name;
    if (stage.firstChild?.dataset.id === String(question.image.id)) return Promise.resolve();
    const shown = pictureOf(question.image);
    stage.replaceChildren(shown);
    return shown.decode().catch(() => {});
  }

  function showNothing(question) {
    stage.replaceChildren();
    file.textContent = "";
    if (question.ready) why.textContent = "Nothing is left to ask: every image has a label or was set aside.";
    else {
      why.textContent = question.stage ? `Please wait: ${question.stage} …` : "The first images are being described …";
      timer = setTimeout(next, AGAIN);
    }
    return Promise.resolve();
  }

  async function answer(choice) {
    if (!current?.image || busy) return;
    busy = true;
    const since = performance.now();
    const { id } = current.image;
    if (typeof choice === "number") picker.flash(choice);
    const body = choice === null ? { id, skip: true } : typeof choice === "string" ? { id, name: choice } : { id, label: choice };
    const name = choice === null ? "set aside" : typeof choice === "string" ? choice : classOf(choice)?.name;
    try {
      const question = await post("/ask/answer", body);
      say(`${name}. ${question.why ?? ""}`);
      busy = false;
      show(question, since);
      emit("labelled", { ids: [id], label: typeof choice === "number" ? choice : null });
    } catch (error) {
      fail(error);
      if (error.status === 409 || error.status === 404) await next();
    } finally {
      busy = false;
      if (document.activeElement === picker.field) picker.field.blur();
    }
  }

  async function back() {
    await undo();
  }

  function reasons() {
    if (current?.image) location.hash = `#/image/${current.image.id}`;
  }

  function addPoint(point) {
    const last = points[points.length - 1];
    if (last && last.labels === point.labels) points[points.length - 1] = point;
    else if (!last || point.labels > last.labels) points.push(point);
    else points = [...points.filter((one) => one.labels < point.labels), point];
  }

  function drawStanding() {
    const { labels, left } = current ?? {};
    // what was learned of an answer comes after the next question, as an event
    const { accuracy, hint: judged } = news ?? current ?? {};
    const rows = [
      [count(labels ?? store.state.labelled), "labels"],
      [count(left ?? 0), "left"],
      accuracy ? [`${Math.round(100 * accuracy.expected)} %`, `right (${Math.round(100 * accuracy.low)} to ${percent(accuracy.high)})`] : null,
    ];
    figures.replaceChildren(...rows.filter(Boolean).map(([a, b]) => h("div", {}, h("b", {}, a), h("span", {}, b))));
    chart.replaceChildren(curve(points));
    hint.classList.toggle("stop", Boolean(judged?.stop));
    hint.textContent = judged?.reason ? `${judged.stop ? "You can stop" : "Keep going"}: ${judged.reason}.` : "";
  }

  function side() {
    const wanted = Math.max(stage.clientWidth, stage.clientHeight, 300) * Math.min(devicePixelRatio, 2);
    return [640, 1024, 1600, 2400].find((one) => one >= wanted) ?? 2400; // few sizes, so that they are kept
  }

  return {
    unmount() {
      gone = true;
      clearTimeout(timer);
      stops.forEach((stop) => stop());
      picker.stop();
      post("/ask/release").catch(() => {});
    },
    keydown(event) {
      if (isTyping(event.target)) return false;
      const one = classOfKey(event);
      if (one) return answer(one.id), true;
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      const onControl = document.activeElement instanceof HTMLButtonElement || document.activeElement instanceof HTMLAnchorElement;
      if (event.key === " " && !onControl) return answer(null), true;
      if (event.key === "Backspace") return back(), true;
      if (event.key === "w" || event.key === "W") return reasons(), true;
      if (/^\p{L}$/u.test(event.key)) {
        picker.field.value = event.key;
        picker.field.focus();
        picker.render();
        return true;
      }
      return false;
    },
  };
}
