# SPDX-License-Identifier: BSD-3-Clause
"""Results of experiments on disk: a JSON file with every figure, and a plot of ours beside the published ones."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from patchbag.storage.replacing import write_json

# inches: of a figure; of a letter, of the sample of a line and of a row of legends in 8 points
WIDTH = 7.5
LETTER, HANDLE, LINE = 0.06, 0.5, 0.16


def result_paths(name: str, folder: Path) -> tuple[Path, Path, Path]:
    """Where the JSON file, the plot and the journal of an experiment are."""
    stem = name.replace("/", "-")
    return folder / f"{stem}.json", folder / f"{stem}.png", folder / f"{stem}.partial.jsonl"


def write_results(result: dict[str, Any], folder: Path) -> tuple[Path, ...]:
    """JSON with every figure, and a plot of ours beside the published ones; confusions beside curves are one more."""
    data_path, plot_path, _ = result_paths(result["name"], folder)
    write_json(data_path, result)
    runs = [r for r in result["runs"] if r.get("mean") is not None]
    wanted, curves = result.get("plot"), any(r.get("series") for r in runs)
    plots = {}
    if wanted == "weights":
        plots[plot_path] = _plot_weights([r for r in runs if r.get("weights")])
    elif wanted != "confusion" and any(r.get("panel") for r in runs):
        plots[plot_path] = _plot_panels(runs)
    elif wanted != "confusion" and any(r.get("curve") for r in runs):
        plots[plot_path] = _plot_lines(runs)
    elif curves or wanted != "confusion":
        plots[plot_path] = _plot_curves(runs) if curves else _plot_points(runs)
    if wanted == "confusion":
        path = plot_path.with_stem(f"{plot_path.stem}-confusion") if plots else plot_path
        plots[path] = _plot_confusion(next(r for r in runs if r.get("confusion")))
    for path, (figure, axes) in plots.items():
        if result.get("axis") and axes is not None and not axes.get_xlabel():
            axes.set_xlabel(result["axis"])
        title = textwrap.fill(result.get("title") or result["name"], int(13 * figure.get_figwidth()))
        (figure.suptitle if axes is None else axes.set_title)(title, fontsize=10)
        figure.savefig(path, dpi=130, metadata={"Software": "patchbag"})
    return (data_path, *plots)


def _canvas(width: float = WIDTH, height: float = 5.0, panels: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, or those of several panels side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, panels)


def _plot_points(runs: list[dict[str, Any]]) -> tuple[Any, Any]:
    """A line per run: our figure with its standard deviation, and the published one."""
    figure, axes = _canvas(height=0.4 * len(runs) + 1.6)
    y = np.arange(len(runs))[::-1]
    ours, spread = [r["mean"] for r in runs], [r.get("std", 0) for r in runs]
    axes.errorbar(ours, y, xerr=spread, fmt="o", color="#2b66b1", capsize=3, label="ours")
    marked = [(r["published"], at) for r, at in zip(runs, y) if r.get("published") is not None]
    if marked:
        axes.plot(*zip(*marked), "D", color="#b3402f", label="published")
    axes.set_yticks(y, [r["name"] for r in runs])
    axes.set_ylim(-0.6, len(runs) - 0.4)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure, axes


def _plot_curves(runs: list[dict[str, Any]]) -> tuple[Any, Any]:
    """A curve per series over its x, and a horizontal line for each run that belongs to none."""
    names = list(dict.fromkeys(r.get("series") for r in runs if r.get("series")))
    measured = {r.get("unit") for r in runs if r.get("series")}
    flat = [r for r in runs if not r.get("series") and r.get("unit") in measured]
    longest = max(map(len, [*names, *(r["name"] for r in flat)]))
    columns = max(1, min(3, int(WIDTH / (LETTER * longest + HANDLE))))
    figure, axes = _canvas(height=4.2 + LINE * -(-(len(names) + len(flat)) // columns))
    for name in names:
        mine = [r for r in runs if r.get("series") == name]
        x = [r["x"] for r in mine]
        ours, spread = [r["mean"] for r in mine], [r.get("std", 0) for r in mine]
        line = axes.errorbar(x, ours, spread, marker="o", capsize=3, label=name)[0]
        theirs = [(r["x"], r["published"]) for r in mine if r.get("published") is not None]
        if theirs:
            axes.plot(*zip(*theirs), "D", markerfacecolor="none", color=line.get_color())
    ticks = sorted({r["x"] for r in runs if r.get("series")})
    axes.set_xscale("log", base=2 if ticks[0] >= 1 else 10)
    if len(ticks) <= 20:
        axes.set_xticks(ticks, [f"{v:g}" for v in ticks])
        axes.minorticks_off()
    for i, r in enumerate(flat):
        style = {"color": f"C{(len(names) + i) % 10}", "linestyle": ("--", ":", "-.")[i // 10 % 3]}
        axes.axhline(r["mean"], linewidth=1, label=r["name"], **style)
    if any(r.get("published") is not None for r in runs if r.get("series")):
        axes.plot([], [], "D", markerfacecolor="none", color="black", label="published")
    axes.set_ylabel(next((r["unit"] for r in runs if r.get("unit")), "mean per-class accuracy, %"))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    return figure, axes


def _plot_lines(runs: list[dict[str, Any]]) -> tuple[Any, Any]:
    """A line for each run that comes with a whole curve, with its standard error where it has one."""
    figure, axes = _canvas()
    for r in runs:
        if not r.get("curve"):
            continue
        curve = np.asarray(r["curve"], dtype=float)
        x = r.get("n_labels") or np.arange(len(curve))
        (line,) = axes.plot(x, curve, label=r.get("curve_name", r["name"]))
        if r.get("curve_error"):
            error = np.asarray(r["curve_error"], dtype=float)
            axes.set_ylabel("mean per-class accuracy, %")
            axes.fill_between(x, curve - error, curve + error, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure, axes


def _plot_panels(runs: list[dict[str, Any]]) -> tuple[Any, None]:
    """Points of the plane with the regions that each run makes of it; rings are what it keeps."""
    figure, panels = _canvas(4.6 * len(runs), 4.6, len(runs))
    for axes, run in zip(np.ravel(panels), runs):
        panel = run["panel"]
        points, labels, kept = (np.asarray(panel[key]) for key in ("points", "labels", "kept"))
        where = {"origin": "lower", "extent": panel["extent"]}
        axes.imshow(panel["regions"], cmap="RdBu", vmin=-1, vmax=2, alpha=0.35, aspect="auto", **where)
        axes.contour(panel["regions"], levels=[0.5], colors="black", linewidths=1, **where)
        for label, marker, color in ((0, "o", "#b3402f"), (1, "s", "#2b66b1")):
            axes.plot(*points[labels == label].T, marker, color=color, markersize=3)
        if len(kept):
            axes.plot(*kept.T, "o", color="black", markerfacecolor="none", markersize=7, markeredgewidth=0.8)
        axes.set_title(f"{run['name']}: {run['mean']:.1f} % wrong", fontsize=9)
    return figure, None


def _plot_weights(runs: list[dict[str, Any]]) -> tuple[Any, Any]:
    """The share of each kernel in the learned weights, over the x of the runs."""
    figure, axes = _canvas()
    shares = [np.asarray(r["weights"]) / np.sum(r["weights"], axis=1, keepdims=True) for r in runs]
    for i, name in enumerate(runs[0]["kernels"]):
        mean, spread = [part[:, i].mean() for part in shares], [part[:, i].std() for part in shares]
        axes.errorbar([r["x"] for r in runs], mean, spread, marker="o", capsize=3, label=name)
    axes.set_ylim(0, None)
    axes.set_ylabel("share of the weights")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure, axes


def _plot_confusion(run: dict[str, Any]) -> tuple[Any, Any]:
    """Which classes the test images of a class are taken for, in percent."""
    counts = np.asarray(run["confusion"], dtype=float)
    percent = 100 * counts / counts.sum(axis=1, keepdims=True)
    side = 2.5 + 0.7 * len(percent)
    figure, axes = _canvas(side, side)
    axes.imshow(percent, cmap="Blues", vmin=0, vmax=100)
    for i, j in np.ndindex(percent.shape):
        color = "white" if percent[i, j] > 50 else "black"
        axes.text(j, i, f"{percent[i, j]:.1f}", ha="center", va="center", color=color)
    axes.set_xticks(range(len(percent)), run["classes"], rotation=30, ha="right")
    axes.set_yticks(range(len(percent)), run["classes"])
    axes.set_xlabel("found")
    axes.set_ylabel("true")
    return figure, axes
