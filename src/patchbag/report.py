# SPDX-License-Identifier: BSD-3-Clause
"""The HTML report of an evaluation: one file, no scripts, nothing fetched from anywhere.

Confusion matrix, accuracy by class, how far stated probabilities can be trusted, the surest mistakes as thumbnails, and
where the time went.  Figures are inline SVG.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.evaluation import LEAST_OF_GROUP, Evaluation
from patchbag.images.thumbnails import thumbnail
from patchbag.metrics import calibration_error
from patchbag.storage.replacing import write_text

THUMBNAILS = 24
PAIRS = 8
SMALL_SIDE = 96
TOLD = 100  # test images from which on the calibration error is given: of fewer it is mostly chance

STYLE = """
:root { --ink: #1d2733; --soft: #5b6876; --line: #dde3ea; --paper: #fff; --wash: #f6f8fa; --good: #1f7a5c; --bad: #b3402f; --blue: #2b66b1 }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9ef; --soft: #9aa7b4; --line: #35404c; --paper: #1a222b; --wash: #12181f; --good: #5cc39c; --bad: #ec8472; --blue: #6ea8ee } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--wash); margin: 0 }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px } h1, h2, td, code { overflow-wrap: anywhere }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 18px; margin: 0 0 4px }
p { margin: 0 0 12px; color: var(--soft) }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 20px 24px; margin-top: 20px }
.figures { display: flex; flex-wrap: wrap; gap: 12px 40px; margin-top: 12px }
.figures b { display: block; font-size: 28px; line-height: 1.2 } .figures span { color: var(--soft) }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 20px }
.pair section { margin-top: 20px } .pair + section { margin-top: 20px }
svg { max-width: 100%; height: auto; display: block } svg text { font: 12px system-ui, sans-serif; fill: var(--ink) }
.mistakes { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 14px }
.mistakes figure { margin: 0 } .mistakes img { width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: 6px; background: var(--wash) }
.mistakes figcaption { font-size: 13px; line-height: 1.35; overflow-wrap: anywhere } .mistakes small { color: var(--soft) }
.voters { display: flex; flex-wrap: wrap; gap: 3px; margin-top: 4px } .mistakes .voters img { width: 42px } .voters span { display: grid; line-height: 1.2 }
.voters small { font-size: 10px } .mistakes .voters small.yes { color: var(--good) } .mistakes .voters small.no { color: var(--bad) }
.kept { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; margin-top: 8px } .kept b { width: 150px; overflow-wrap: anywhere }
.kept small { width: 60px; color: var(--soft) } .kept img { width: 72px; aspect-ratio: 1; object-fit: cover; border-radius: 5px }
.no { color: var(--bad) } .yes { color: var(--good) }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); font-weight: normal }
td:not(.number) { min-width: 4.5em } td.number, th.number { text-align: right; font-variant-numeric: tabular-nums } th { color: var(--soft) }
.made { font-size: 13px } .wide { overflow-x: auto }
@media (max-width: 480px) { main { padding: 16px 10px 40px } section { padding: 14px 12px } .figures { gap: 10px 24px } .figures b { font-size: 22px } .mistakes { grid-template-columns: repeat(auto-fill, minmax(110px, 1fr)) } }
details summary { cursor: pointer; color: var(--soft) } code { font-size: 13px }
"""


def write_report(evaluation: Evaluation, path: str | Path, title: str, failures: Iterable[Any] = ()) -> Path:
    """Write the report of an evaluation; ``failures`` are the images that could not be read."""
    return write_text(path, render(evaluation, title, list(failures)))


def render(evaluation: Evaluation, title: str, failures: list[Any]) -> str:
    """The report as one HTML page."""
    e = evaluation
    first = e.splits[0]
    spread = f" ± {100 * e.std_accuracy:.1f}" if len(e.splits) > 1 else ""
    figures = [
        (f"{100 * e.mean_accuracy:.1f}{spread} %", "mean per-class accuracy"),
        (f"{len(e.classes)}", "classes"),
        (f"{first.n_train} / {first.n_test}", "training / test images"),
    ]
    if tested_images(e) >= TOLD:
        figures.append((f"{100 * calibration_error(e.reliability):.1f} %", "calibration error (see below)"))
    blocks = "".join(f"<div><b>{escape(a)}</b><span>{escape(b)}</span></div>" for a, b in figures)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} · patchbag</title><style>{STYLE}</style></head><body><main>
<h1>{escape(title)}</h1><p>recipe <b>{escape(e.recipe)}</b>; {escape(e.protocol)}</p>
<p class="made">{made_html(e)}</p>
<section><div class="figures">{blocks}</div></section>
<section><h2>Confusion matrix</h2><p>Rows are the true classes; a cell is the share of that class's images, in percent.</p><div class="wide">{confusion_svg(e)}</div></section>
{pairs_html(e)}
<div class="pair"><section><h2>Accuracy by class</h2><p>Mean over splits, best first.</p>{classes_svg(e)}</section>
{reliability_html(e)}</div>
<section><h2>The surest mistakes</h2><p>Wrong answers with the highest stated probability: often two classes that look alike,
or a label to look at again.</p>{mistakes_html(e)}</section>
{prototypes_html(e)}
{failures_html(failures)}
<section><h2>Where the time went</h2>{time_html(e)}</section>
<section><details><summary>Parameters</summary>{parameters_html(e.parameters)}</details></section>
</main></body></html>"""


def made_html(e: Evaluation) -> str:
    """When, by what and with which command."""
    from patchbag import __version__

    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, patchbag {__version__}"
    return escape(made) + (f": <code>{escape(e.command)}</code>" if e.command else "")


def pairs_html(e: Evaluation) -> str:
    """The classes that are taken for one another most often."""
    counts = e.confusion.astype(float)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    np.fill_diagonal(share, 0)
    order = np.argsort(-share, axis=None, kind="stable")[:PAIRS]
    found = [divmod(int(k), len(e.classes)) for k in order if share.flat[k] > 0]
    if not found:
        return ""
    rows = "".join(
        f'<tr><td>{escape(e.classes[i])}</td><td>{escape(e.classes[j])}</td><td class="number">{100 * share[i, j]:.1f} %</td>'
        f'<td class="number">{counts[i, j]:.0f}</td></tr>'
        for i, j in found
    )
    head = '<tr><th>class</th><th>taken for</th><th class="number">of its images</th><th class="number">images, all splits</th></tr>'
    return f"<section><h2>Most confused</h2><table>{head}{rows}</table></section>"


def confusion_svg(e: Evaluation) -> str:
    """Heat map of the row-normalised confusion matrix."""
    counts = e.confusion.astype(float)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    n = len(e.classes)
    side = 34 if n <= 20 else 20 if n <= 40 else 8
    every = 1 if n <= 40 else 2  # rows of 8 pixels leave room for every other name
    room = name_room(e.classes)
    left, top = room, 24 + round(0.8 * room)
    axis = 'style="fill:var(--soft)"'
    parts = [
        f'<text x="{left}" y="14" {axis}>predicted →</text>',
        f'<text x="{left - 8}" y="{top - 8}" text-anchor="end" {axis}>true ↓</text>',
    ]
    for i in range(n):
        y = top + i * side
        if i % every == 0:
            parts.append(
                f'<text x="{left - 8}" y="{y + side / 2 + 4}" text-anchor="end">{escape(_short(e.classes[i]))}</text>'
            )
            x = left + i * side + side / 2
            parts.append(
                f'<text transform="translate({x + 4},{top - 8}) rotate(-50)">{escape(_short(e.classes[i]))}</text>'
            )
        for j in range(n):
            value = share[i, j]
            colour = "var(--good)" if i == j else "var(--bad)"
            x = left + j * side
            tip = f"{e.classes[i]} → {e.classes[j]}: {100 * value:.1f} % ({counts[i, j]:.0f})"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" style="fill:{colour};fill-opacity:{_strength(value):.2f}"><title>{escape(tip)}</title></rect>'
            )
            if side >= 34 and value >= 0.005:
                ink = "var(--paper)" if value > 0.5 else "var(--ink)"
                parts.append(
                    f'<text x="{x + side / 2}" y="{y + side / 2 + 4}" text-anchor="middle" style="fill:{ink}">{100 * value:.0f}</text>'
                )
    width, height = left + n * side + round(0.6 * room), top + n * side + 4
    least = min(width, 560)  # a narrow screen scrolls sideways, rather than that a large matrix cannot be read
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" style="min-width:{least}px" role="img" aria-label="confusion matrix">{"".join(parts)}</svg>'


def classes_svg(e: Evaluation) -> str:
    """Bars of the mean accuracy of each class."""
    means = {c: float(np.mean([s.per_class[c] for s in e.splits])) for c in e.classes}
    order = sorted(means, key=lambda c: -means[c])
    row, left, bar = 22, name_room(e.classes), 230
    parts = []
    for i, name in enumerate(order):
        y, width = i * row, means[name] * bar
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(_short(name))}</text>')
        parts.append(f'<rect x="{left}" y="{y + 4}" width="{bar}" height="14" style="fill:var(--line)"/>')
        parts.append(f'<rect x="{left}" y="{y + 4}" width="{width:.1f}" height="14" style="fill:var(--blue)"/>')
        parts.append(f'<text x="{left + bar + 8}" y="{y + 15}">{100 * means[name]:.1f}</text>')
    return f'<svg viewBox="0 0 {left + bar + 50} {len(order) * row}" role="img" aria-label="accuracy by class">{"".join(parts)}</svg>'


def tested_images(e: Evaluation) -> int:
    """How many different images were given a probability, in any split."""
    return len(np.unique(np.concatenate(e.confidence)[:, 2])) if e.confidence else 0


def reliability_html(e: Evaluation) -> str:
    """How far the stated probabilities can be trusted; nothing where none were asked for."""
    if not e.reliability:
        return ""
    error = (
        f"the calibration error, {100 * calibration_error(e.reliability):.1f} %, is how far from it the dots lie on "
        "average, each weighed by its share of the images"
        if tested_images(e) >= TOLD
        else f"{TOLD} test images are needed to say how far from it the dots lie on average"
    )
    return (
        "<section><h2>How sure is it?</h2><p>Of the images given a probability around x, the share that was right; the "
        f"bar is where it is likely to lie (95 %) given so many images, {LEAST_OF_GROUP} or more per dot. On the "
        f"diagonal the probabilities mean what they say; {error}.</p>{reliability_svg(e)}</section>"
    )


def reliability_svg(e: Evaluation) -> str:
    """Stated probability against the share that was right, with its interval; the area of a dot is the share of images."""
    size, left, top = 300, 44, 14
    parts = [
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" style="fill:none;stroke:var(--line)"/>',
        f'<line x1="{left}" y1="{top + size}" x2="{left + size}" y2="{top}" stroke="#9aa7b4" stroke-dasharray="4 4"/>',
    ]
    for r in e.reliability:
        x = left + r["confidence"] * size
        y, low, high = (top + (1 - r[what]) * size for what in ("accuracy", "low", "high"))
        tip = (
            f"stated {100 * r['confidence']:.0f} %, right {100 * r['accuracy']:.0f} % "
            f"({100 * r['low']:.0f} to {100 * r['high']:.0f}), {100 * r['share']:.1f} % of the images"
        )
        parts.append(
            f'<path d="M{x - 4:.1f} {low:.1f}h8m-4 0V{high:.1f}m-4 0h8" style="fill:none;stroke:var(--blue);stroke-width:1.5"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 + 9 * r["share"] ** 0.5:.1f}" style="fill:var(--blue);fill-opacity:.75"><title>{tip}</title></circle>'
        )
    for tick in (0, 0.5, 1):
        parts.append(f'<text x="{left + tick * size}" y="{top + size + 18}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<text x="{left - 8}" y="{top + (1 - tick) * size + 4}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<text x="{left + size / 2}" y="{top + size + 38}" text-anchor="middle">stated probability</text>')
    parts.append(
        f'<text transform="translate(12,{top + size / 2}) rotate(-90)" text-anchor="middle">share right</text>'
    )
    return f'<svg viewBox="0 0 {left + size + 20} {top + size + 46}" width="380" role="img" aria-label="reliability">{"".join(parts)}</svg>'


def mistakes_html(e: Evaluation) -> str:
    """Thumbnails of the mistakes, one per image."""
    seen: dict[str, dict[str, Any]] = {}
    for mistake in e.mistakes:
        seen.setdefault(mistake["image"], mistake)
    cards = []
    for m in list(seen.values())[:THUMBNAILS]:
        cards.append(
            f'<figure><img alt="" src="{thumbnail(m["image"])}"><figcaption><span class="no">{escape(m["predicted"])}</span> '
            f'{100 * m["probability"]:.0f} %<br>is <span class="yes">{escape(m["label"])}</span><br>'
            f"<small>{escape(Path(m['image']).name)}</small></figcaption>{voters_html(m.get('voters', []))}</figure>"
        )
    return f'<div class="mistakes">{"".join(cards)}</div>' if cards else "<p>There were none.</p>"


def voters_html(voters: list[dict[str, Any]]) -> str:
    """The training images whose votes decided, and what they said of the class predicted."""
    if not voters:
        return ""
    cards = "".join(
        f'<span title="{escape(Path(v["image"]).name)}, {escape(v["label"])}"><img alt="{escape(v["label"])}" '
        f'src="{thumbnail(v["image"], SMALL_SIDE)}"><small class="{"yes" if v["vote"] > 0 else "no"}">{100 * v["vote"]:+.0f} %</small></span>'
        for v in voters
    )
    return f'<div class="voters">{cards}</div>'


def prototypes_html(e: Evaluation) -> str:
    """The training images of the first split that vote, class by class."""
    kept = e.splits[0].prototypes
    if not kept:
        return ""
    rows = []
    for label in dict.fromkeys(p["label"] for p in kept):
        mine = [p for p in kept if p["label"] == label]
        images = "".join(
            f'<img alt="" title="{escape(Path(p["image"]).name)}: {p["weight"]:.3g}" src="{thumbnail(p["image"], SMALL_SIDE)}">'
            for p in mine
        )
        rows.append(
            f'<div class="kept"><b>{escape(_short(label))}</b><small>{mine[0]["of"]} kept</small>{images}</div>'
        )
    return (
        "<section><h2>The images that vote</h2><p>Training images with the largest weights, in the first split. Under each "
        "mistake above are those that decided, with their shares of all votes: green for the class that was given, red "
        f"against it.</p>{''.join(rows)}</section>"
    )


def failures_html(failures: list[Any]) -> str:
    if not failures:
        return ""
    rows = "".join(f"<tr><td>{escape(str(f.name))}</td><td>{escape(str(f.message))}</td></tr>" for f in failures)
    return f"<section><h2>Left out</h2><p>{len(failures)} files could not be used.</p><table>{rows}</table></section>"


def time_html(e: Evaluation) -> str:
    """The time of each step, and its share."""
    seconds = e.seconds()
    total = max(seconds["total"], 1e-9)
    rows = "".join(
        f'<tr><td>{escape(k)}</td><td class="number">{v:.2f} s</td><td class="number">{100 * v / total:.0f} %</td></tr>'
        for k, v in seconds.items()
        if k != "total"
    )
    rows += f'<tr><td>total</td><td class="number">{total:.2f} s</td><td class="number">{e.images_per_second():.0f} images/s</td></tr>'
    return f"<table>{rows}</table>"


def parameters_html(parameters: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(k)}</code></td><td><code>{escape(str(v))}</code></td></tr>"
        for k, v in parameters.items()
    )
    return f"<table>{rows}</table>"


def name_room(names: Iterable[str]) -> int:
    """Pixels for the longest of some names, as they are shown."""
    return min(150, max(60, 16 + 7 * max(len(_short(name)) for name in names)))


def _short(name: str) -> str:
    return name if len(name) <= 20 else name[:19] + "…"


def _strength(value: float) -> float:
    """Opacity of a cell; small values are lifted so that they can be seen, and a cell of none is still a cell."""
    return float(max(value**0.6 if value > 0 else 0.0, 0.05))
