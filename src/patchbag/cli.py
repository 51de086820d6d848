# SPDX-License-Identifier: BSD-3-Clause
"""The command line: demo, train, predict, evaluate, active, recipes, reproduce, cache.

Results go to standard output, progress and messages to standard error.  Heavy modules are imported by the command that
needs them, so that ``patchbag --help`` answers at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

app = typer.Typer(
    help="Categorise images by their local features, and say how sure it is.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console()
err = Console(stderr=True)

RecipeOption = Annotated[str, typer.Option("--recipe", "-r", help="How images are compared; see 'patchbag recipes'.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="NAME=VALUE", help="A parameter of the recipe, e.g. statistics.mixture.n_components=64."
    ),
]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", help="Processes that describe images; -1 for all cores.")]
CacheOption = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Keep the features of images on disk for the next run.")
]
ColorOption = Annotated[bool, typer.Option("--color", help="Also train on colours and average both answers.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]


def main() -> None:
    """Entry point: errors of the user are one line, not a traceback."""
    warnings.showwarning = show_warning
    try:
        app()
    except (ValueError, OSError) as error:  # bad folders, images and model files are ValueErrors of their own kind
        if os.environ.get("PATCHBAG_DEBUG"):
            raise
        err.print(f"[bold red]error:[/] {_literal(error)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        err.print("stopped")
        sys.exit(130)


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning of the library as one line, without the place in the code."""
    err.print(f"[yellow]warning:[/] {_literal(message)}", highlight=False, soft_wrap=True)


def _literal(text: Any) -> str:
    from rich.markup import escape

    return escape(str(text))


def version_callback(value: bool) -> None:
    if value:
        from patchbag import __version__

        out.print(f"patchbag {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def patchbag(
    version: Annotated[
        bool, typer.Option("--version", callback=version_callback, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Categorise images by their local features, and say how sure it is."""


# --- shared by the commands --------------------------------------------------------------------------------------


def parse_settings(settings: list[str] | None) -> dict[str, Any]:
    """``["a.b=1"]`` → {"a__b": 1}: values are JSON where they can be, else text."""
    parsed: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE, such as statistics.mixture.n_components=64; got {setting!r}")
        try:
            parsed[name.replace(".", "__")] = json.loads(value)
        except ValueError:
            parsed[name.replace(".", "__")] = value
    return parsed


def make_categorizer(recipe: str, settings: list[str] | None, seed: int, color: bool) -> Any:
    """The categorizer of a recipe with the user's settings; a setting that it does not have is an error."""
    from patchbag.categorizer import Categorizer

    categorizer = Categorizer(recipe, color=color, random_state=seed)
    parsed = parse_settings(settings)
    valid = categorizer.get_params(deep=True)
    for name in parsed:
        if f"recipe__{name}" not in valid:
            raise ValueError(
                f"recipe {recipe!r} has no parameter {name.replace('__', '.')!r}; see 'patchbag recipes {recipe}'"
            )
    return categorizer.set_params(**{f"recipe__{k}": v for k, v in parsed.items()}) if parsed else categorizer


@contextlib.contextmanager
def feature_cache(keep: bool) -> Iterator[Any]:
    """The user's cache, or one that lasts as long as the command."""
    if keep:
        yield True
    else:
        with tempfile.TemporaryDirectory(prefix="patchbag-") as folder:
            yield folder


def progress_bar() -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=err, transient=True)


def describe_images(categorizer: Any, paths: list[str]) -> list[Any]:
    """Describe every image once, filling the cache; returns the failures."""
    from patchbag.recipes import extractors

    failures: dict[int, Any] = {}
    pipeline = categorizer.recipe_ if hasattr(categorizer, "recipe_") else categorizer.pipeline()
    with progress_bar() as bar:
        for extractor in extractors(pipeline):
            extractor.set_params(n_jobs=categorizer.n_jobs, cache=categorizer.cache)
            task = bar.add_task("describing images", total=len(paths))
            for index, result in enumerate(extractor.stream(paths)):
                if hasattr(result, "message"):
                    failures[index] = result
                bar.update(task, advance=1)
    return [failures[i] for i in sorted(failures)]


def list_failures(failures: list[Any], total: int) -> None:
    """Say which files were left out; long lists are cut, never silently."""
    if not failures:
        return
    err.print(f"[yellow]left out {len(failures)} of {total} files:[/]")
    for failure in failures[:20]:
        err.print(f"  {_literal(failure.name)}: {_literal(failure.message)}", highlight=False, soft_wrap=True)
    if len(failures) > 20:
        err.print(f"  and {len(failures) - 20} more")


def readable_folder(folder: Path, categorizer: Any) -> tuple[Any, list[Any]]:
    """The images of a labelled folder that can be described, and the others."""
    from patchbag.datasets import FolderError, open_folder

    images = open_folder(folder)
    failures = describe_images(categorizer, images.paths)
    list_failures(failures, len(images))
    broken = {f.index for f in failures}
    kept = images.take([i for i in range(len(images)) if i not in broken])
    if len(kept.classes) < 2:
        raise FolderError(f"{folder}: fewer than two classes have an image that can be read")
    if images.passed_over:
        err.print(f"[dim]{images.passed_over} files are not named like images and were passed over[/]")
    return kept, failures


# --- commands ----------------------------------------------------------------------------------------------------


@app.command()
def train(
    folder: Annotated[Path, typer.Argument(help="Folder with one sub-folder of images a class.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")] = Path("model.patchbag"),
    recipe: RecipeOption = "fisher",
    color: ColorOption = False,
    settings: SetOption = None,
    jobs: JobsOption = -1,
    cache: CacheOption = True,
    seed: SeedOption = 0,
) -> None:
    """Train a categorizer on a folder and write it to a file."""
    categorizer = make_categorizer(recipe, settings, seed, color)
    with feature_cache(cache) as place:
        categorizer.set_params(n_jobs=jobs, cache=place)
        images, _ = readable_folder(folder, categorizer)
        with err.status(f"training {recipe} on {len(images)} images of {len(images.classes)} classes"):
            categorizer.fit(images.paths, images.labels)
    categorizer.save(output)
    size = output.stat().st_size / 1e6
    out.print(
        f"{output}: {recipe}, {len(images)} images, {len(images.classes)} classes, {size:.1f} MB",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model written by 'patchbag train'.")],
    images: Annotated[list[str], typer.Argument(help="Image files, folders and glob patterns.")],
    top: Annotated[int, typer.Option("--top", "-k", min=1, help="How many classes to show for each image.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with every probability.")] = False,
    jobs: JobsOption = -1,
    cache: CacheOption = True,
) -> None:
    """Say what is in images, and how sure that is."""
    from patchbag.categorizer import Categorizer
    from patchbag.datasets import find_images

    categorizer = Categorizer.load(model)
    paths = find_images(images)
    with feature_cache(cache) as place:
        categorizer.set_params(n_jobs=jobs, cache=place)
        failures = describe_images(categorizer, paths)
        broken = {f.index for f in failures}
        good = [p for i, p in enumerate(paths) if i not in broken]
        probabilities: Any = categorizer.predict_proba(good) if good else []
    print_predictions(good, probabilities, [str(c) for c in categorizer.classes_], top, as_json)
    if as_json:
        for failure in failures:
            print(json.dumps({"image": paths[failure.index], "error": failure.message}))
    else:
        list_failures(failures, len(paths))
    if not good:
        raise typer.Exit(1)


def print_predictions(paths: list[str], probabilities: Any, names: list[str], top: int, as_json: bool) -> None:
    """JSON lines, a table on a terminal, or tab-separated lines for the next program in a pipe."""
    table = Table("image", "label", "probability", "next", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    for path, row in zip(paths, probabilities):
        order = [int(i) for i in row.argsort()[::-1]]
        best = names[order[0]]
        if as_json:
            ranked = {names[i]: round(float(row[i]), 6) for i in order}
            print(json.dumps({"image": path, "label": best, "probability": ranked[best], "probabilities": ranked}))
        elif out.is_terminal:
            others = ", ".join(f"{names[i]} {100 * row[i]:.0f} %" for i in order[1:top])
            table.add_row(
                _literal(path), f"[bold]{_literal(best)}[/]", f"{100 * row[order[0]]:.1f} %", _literal(others)
            )
        else:
            print("\t".join([path, *(f"{names[i]}\t{row[i]:.4f}" for i in order[:top])]))
    if table.row_count:
        out.print(table)


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="Folder with one sub-folder of images a class.")],
    recipe: RecipeOption = "fisher",
    color: ColorOption = False,
    train_per_class: Annotated[
        int, typer.Option(min=1, help="Random images a class that train; the rest tests.")
    ] = 100,
    splits: Annotated[int, typer.Option(min=1, help="Number of random splits.")] = 10,
    seed: SeedOption = 0,
    settings: SetOption = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write every figure to this JSON file.")
    ] = None,
    report: Annotated[Path, typer.Option(help="The HTML report to write.")] = Path("patchbag-report.html"),
    jobs: JobsOption = -1,
    cache: CacheOption = True,
) -> None:
    """Measure a recipe on a folder: accuracy over random splits, an HTML report and a JSON file."""
    import time

    categorizer = make_categorizer(recipe, settings, seed, color)
    with feature_cache(cache) as place:
        categorizer.set_params(n_jobs=jobs, cache=place)
        started = time.perf_counter()
        images, failures = readable_folder(folder, categorizer)
        describing = time.perf_counter() - started
        run_evaluation(
            images,
            categorizer,
            recipe,
            train_per_class,
            splits,
            seed,
            describing,
            failures,
            json_path,
            report,
            folder.resolve().name,
        )


def run_evaluation(
    images: Any, categorizer: Any, recipe: str, train_per_class: int, splits: int, seed: int, describing: float,
    failures: list[Any], json_path: Path | None, report: Path, title: str,
) -> Any:  # fmt: skip
    """Evaluate, print the figures, write the JSON file and the report."""
    from patchbag.evaluation import evaluate as run
    from patchbag.report import write_report

    with err.status("starting") as status:

        def tell(message: str) -> None:
            status.update(message)
            if not err.is_terminal:  # a log file shows no spinner
                err.print(message, highlight=False)

        result = run(images, categorizer, train_per_class=train_per_class, splits=splits, seed=seed, progress=tell)
    result.recipe = recipe
    spread = f" ± {100 * result.std_accuracy:.2f}" if splits > 1 else ""
    seconds = {"describe images": describing, **{k: v for k, v in result.seconds().items() if k != "total"}}
    total = sum(seconds.values())
    table = Table("step", "seconds", "share", box=None, pad_edge=False)
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, value in seconds.items():
        table.add_row(name, f"{value:.2f}", f"{100 * value / total:.0f} %")
    handled = sum(s.n_train + s.n_test for s in result.splits)
    table.add_row("total", f"{total:.2f}", f"{handled / total:.0f} images/s")
    err.print(table)
    how = f"{splits} split{'s' if splits > 1 else ''}, {train_per_class} training images a class"
    figure = f"{100 * result.mean_accuracy:.2f}{spread} % mean per-class accuracy"
    out.print(f"{recipe}: {figure} ({how})", highlight=False)
    if json_path is not None:
        data = result.to_json()
        data["seconds"] = {**seconds, "total": total}
        data["images_per_second"] = handled / total
        data["left_out"] = [{"image": f.name, "reason": f.message} for f in failures]
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(data, indent=1))
    out.print(f"report: {write_report(result, report, title, failures)}", highlight=False, soft_wrap=True)
    return result


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Show the parameters of this recipe.")] = None,
) -> None:
    """List the recipes, or the parameters of one."""
    from patchbag.categorizer import Categorizer
    from patchbag.evaluation import json_parameters
    from patchbag.recipes import RECIPES, make_recipe

    if name is None:
        table = Table("recipe", "what it does", "source", box=None, pad_edge=False)
        for recipe in RECIPES.values():
            table.add_row(f"[bold]{recipe.name}[/]", recipe.summary, recipe.paper)
        out.print(table)
        return
    make_recipe(name)
    table = Table("parameter", "default", box=None, pad_edge=False)
    for key, value in json_parameters(Categorizer(name)).items():
        if key.startswith("recipe__"):
            table.add_row(key.removeprefix("recipe__").replace("__", "."), _literal(json.dumps(value)))
    out.print(table)


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pictures, the model and the report.")
    ] = Path("patchbag-demo"),
    recipe: RecipeOption = "fisher",
) -> None:
    """Run the whole path on photographs that come with the installed packages, in under a minute."""
    import time

    from patchbag.categorizer import Categorizer
    from patchbag.demo import run_demo

    started = time.perf_counter()
    with err.status("cutting photographs into tiles") as status:
        result = run_demo(Categorizer(recipe), output, progress=status.update)
    out.print(result.summary(), highlight=False)
    out.print(f"report: {result.report}\nmodel:  {result.model}", highlight=False, soft_wrap=True)
    out.print(f"[dim]{time.perf_counter() - started:.0f} s[/]", highlight=False)


@app.command()
def reproduce(
    experiment: Annotated[
        str | None, typer.Argument(help="Name such as liu2010/scene15, or a TOML file; without it, a list.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="PATCHBAG_DATA", help="Folder that holds the data sets, one sub-folder each.")
    ] = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Random splits, instead of the experiment's own number.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the JSON file and the plot.")] = Path(
        "results"
    ),
    jobs: JobsOption = -1,
    cache: CacheOption = True,
) -> None:
    """Run a published experiment and print our figures beside the published ones."""
    from patchbag.experiments import list_experiments, load_experiment, run_experiment, write_results

    if experiment is None:
        for name in list_experiments():
            spec = load_experiment(name)
            out.print(f"[bold]{name}[/]  {_literal(spec.get('title', ''))}", highlight=False, soft_wrap=True)
        return
    spec = load_experiment(experiment)
    with feature_cache(cache) as place, err.status("starting") as status:

        def tell(message: str) -> None:
            status.update(message)
            if not err.is_terminal:
                err.print(message, highlight=False)

        result = run_experiment(spec, data, splits=splits, n_jobs=jobs, cache=place, progress=tell)
    table = Table("run", "ours", "published", "seconds", title=_literal(result["title"]), box=None, pad_edge=False)
    for run in result["runs"]:
        spread = f" ± {run['std']:.2f}" if run.get("std") else ""
        published = "" if run.get("published") is None else f"{run['published']:g}"
        table.add_row(_literal(run["name"]), f"{run['mean']:.2f}{spread}", published, f"{run.get('seconds') or 0:.0f}")
    out.print(table)
    out.print(*write_results(result, output), sep="\n", highlight=False, soft_wrap=True)


@app.command()
def active(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder with a sub-folder a class, and images without a label in it or in unlabelled/."),
    ],
    labels: Annotated[
        Path | None, typer.Option(help="CSV or JSON file of the answers, taken up again; default FOLDER/labels.csv.")
    ] = None,
    recipe: RecipeOption = "gp-spm",
    criterion: Annotated[
        str, typer.Option("--criterion", "-c", help="uncertainty, margin, variance, influence, entropy or random.")
    ] = "uncertainty",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Labels to ask for; default: until you quit, 50 in a simulation.")
    ] = None,
    move: Annotated[
        bool, typer.Option("--move", help="Move labelled images into the sub-folder of their class.")
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Replay a labelled folder against random choice and draw the curves.")
    ] = False,
    runs: Annotated[int, typer.Option(min=1, help="Repetitions of a simulation.")] = 10,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where a simulation writes its .png and .json.")
    ] = Path("patchbag-active"),
    settings: SetOption = None,
    jobs: JobsOption = -1,
    cache: CacheOption = True,
    seed: SeedOption = 0,
) -> None:
    """Label images in the order in which it helps most, or simulate how much that saves."""
    from patchbag.active import CRITERIA, terminal
    from patchbag.active.folder import LabelFile
    from patchbag.recipes import apply_runtime

    if criterion not in CRITERIA:
        raise ValueError(f"--criterion must be one of {', '.join(CRITERIA)}; got {criterion!r}")
    categorizer = make_categorizer(recipe, settings, seed, False)
    book = LabelFile.open(labels or folder / "labels.csv")
    with feature_cache(cache) as place:
        categorizer.set_params(n_jobs=jobs, cache=place)
        images = readable_pool(folder, book, categorizer, simulate)
        pipeline = apply_runtime(categorizer.pipeline(), n_jobs=jobs, cache=place, random_state=seed)
        with err.status(f"comparing {len(images)} images"):
            kernel = terminal.pool_kernel(pipeline, images.full_paths(), None if simulate else images.labels)
    if simulate:
        with err.status(f"simulating {runs} runs"):
            curves = terminal.learning_curves(kernel, images.labels, criterion, rounds or 50, runs, seed)
        out.print(terminal.summarise(curves), highlight=False, soft_wrap=True)
        written = terminal.write_curves(curves, output, f"{folder.resolve().name}, {recipe}")
        out.print(*written, sep="\n", highlight=False, soft_wrap=True)
        return

    def tell(text: str) -> None:
        out.print(_literal(text), highlight=False, soft_wrap=True)

    tell(terminal.HELP)
    given = terminal.label_images(
        images, kernel, book, ask=input, tell=tell, criterion=criterion, rounds=rounds, move=move, seed=seed
    )
    left = sum(label is None for label in images.labels)
    tell(f"{given} new label{'' if given == 1 else 's'}, {left} of {len(images)} images without one; see {book.path}")


def readable_pool(folder: Path, book: Any, categorizer: Any, labelled: bool) -> Any:
    """The images of a partly labelled folder that can be described; all or only the ``labelled`` ones."""
    from patchbag.active.folder import open_partly_labelled, restore

    images = open_partly_labelled(folder)
    restore(images, book)
    images = images.labelled() if labelled else images.with_pool()
    failures = describe_images(categorizer, images.full_paths())
    list_failures(failures, len(images))
    images = images.without({f.index for f in failures})
    return images.labelled() if labelled else images.with_pool()


@app.command("cache")
def cache_command(
    clear: Annotated[bool, typer.Option("--clear", help="Delete the cached features.")] = False,
) -> None:
    """Show the cache of image features, or clear it."""
    from patchbag.features import cache

    if clear:
        out.print(f"removed {cache.clear()} entries", highlight=False)
    info = cache.info()
    out.print(
        f"{info.folder}: {info.entries} images, {info.bytes / 1e6:.1f} of {info.max_bytes / 1e6:.0f} MB",
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
