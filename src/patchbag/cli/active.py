# SPDX-License-Identifier: BSD-3-Clause
"""The command for few labels: active."""

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from patchbag.cli import options, screen
from patchbag.cli.files import check_outputs, describe_images, machine


@options.app.command()
def active(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder with a sub-folder per class, and images without a label in it or in unlabelled/."),
    ],
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV or JSON file of the answers, taken up again; default: FOLDER/labels.csv or .json."),
    ] = None,
    recipe: options.RecipeOption = "deep-pool",
    features: options.FeaturesOption = None,
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            "-c",
            help="representative, where images without a label teach as well; random; or of a Gaussian process alone: "
            "uncertainty, margin, variance, influence, entropy, one_vs_all.",
        ),
    ] = "representative",
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Labels to ask for; default: until you quit, 50 in a simulation."),
    ] = None,
    move: Annotated[
        bool,
        typer.Option("--move", help="Move images with an answer, now or earlier, into the sub-folder of their class."),
    ] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Replay a labelled folder against random choice and draw the curves.")
    ] = False,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Repetitions of a simulation.")] = 10,
    start: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="First labels per class in a simulation; then test images are held out."),
    ] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where a simulation writes its .png and .json.")
    ] = Path("patchbag-active"),
    show: Annotated[
        str, typer.Option(help="How the terminal shows the image: auto, kitty, iterm, sixel, blocks or none.")
    ] = "auto",
    open_viewer: Annotated[bool, typer.Option("--open", help="Open each image with the system's viewer, too.")] = False,
    settings: options.SetOption = None,
    jobs: options.JobsOption = -1,
    cache: options.CacheOption = True,
    max_pixels: options.PixelsOption = None,
    frame: options.FrameOption = None,
    channels: options.ChannelsOption = None,
    seed: options.SeedOption = 0,
    force: options.ForceOption = False,
) -> None:
    """Label images in the order in which it helps most, or simulate how much that saves."""
    from patchbag.active import CRITERIA, RULES
    from patchbag.active.pool import pool_graph, pool_kernel
    from patchbag.cli import curves as learning
    from patchbag.cli import dialogue
    from patchbag.cli.pictures import MEANS, best_means
    from patchbag.collection import open_collection
    from patchbag.collection.labels import LabelFile, open_answers

    if show not in MEANS:
        raise ValueError(f"--show must be one of {', '.join(MEANS)}; got {show!r}")
    on_graph = criterion in RULES[:2]
    if not on_graph and criterion not in CRITERIA:
        raise ValueError(f"--criterion must be one of {', '.join((RULES[0], *CRITERIA))}; got {criterion!r}")
    categorizer = options.make_categorizer(recipe, features, settings, seed)
    parts = ["--recipe", recipe, *(["--features", features] if features else [])]
    chosen = " " + shlex.join([*parts, *(part for setting in settings or [] for part in ("--set", setting))])
    book = LabelFile.open(labels) if labels else open_answers(folder)
    if simulate:
        if move:
            screen.say("--move is ignored: a simulation moves nothing", "yellow")
        check_outputs(Path(f"{output}.png"), Path(f"{output}.json"), force=force)
    elif folder.is_dir():  # else a folder that is misspelt would be made here
        check_outputs(book.path, replaced=True, force=True)  # answers are added to what is there
    images = open_collection(folder, book)
    if move and not simulate and (moved := dialogue.move_answered(images, book)):
        several = f"{moved} images that had a label into the folders of their classes"
        one = "an image that had a label into the folder of its class"
        screen.result(f"moved {one if moved == 1 else several}")
        if all(label is not None for label in images.labels.tolist()):
            screen.result(dialogue.next_step(images, book.path, move, chosen))
            return
    images = images.labelled() if simulate else dialogue.check_pool(images)
    with machine(jobs, cache, seed), options.settings_to_blame(settings):
        pipeline = categorizer.pipeline()
        described = describe_images(images, pipeline["features"])
        images = images[described.kept]
        images = images.labelled() if simulate else dialogue.check_pool(images)
        with screen.working(f"comparing {len(images)} images"):
            make_pool = pool_graph if on_graph else pool_kernel
            pool = make_pool(pipeline, described.bags, None if simulate else images.labels)
        if simulate:
            truth = images.labels.astype(str)
            rounds = rounds or 50
            with screen.working(f"simulating {screen.count(runs, 'run')}"):
                curves = learning.learning_curves(pool, truth, criterion, rounds, runs, seed, start)
    if simulate:
        asked = int(curves.n_labels[-1]) - start * len(set(truth))
        screen.result(learning.summarise(curves, rounds if asked < (rounds or 0) else None))
        for path in learning.write_curves(curves, output, f"{folder.resolve().name}, {recipe}"):
            screen.result(path)
        return
    screen.result(dialogue.help_text({label for label in images.labels.tolist() if label is not None}))
    make = partial(make_learner, pool, criterion, on_graph, seed)
    look = partial(look_at, best_means(os.environ, sys.stdout.isatty()) if show == "auto" else show, open_viewer)
    with machine(jobs, cache, seed):
        given = dialogue.label_images(
            images, make, book, ask=input, tell=screen.result, look=look, rounds=rounds, move=move
        )
    left = sum(label is None for label in images.labels.tolist())
    screen.result(f"{screen.count(given, 'new label')}, {left} of {len(images)} images without one; see {book.path}")
    screen.result(dialogue.next_step(images, book.path, move, chosen))


def make_learner(pool: Any, criterion: str, on_graph: bool, seed: int, labels: list[Any]) -> Any:
    """A learner of the pool from its labels so far."""
    from patchbag.active import ActiveLearner, PoolLearner

    learner = PoolLearner(criterion) if on_graph else ActiveLearner(criterion)
    return learner.set_params(random_state=seed).fit(pool, labels)


def look_at(means: str, launch: bool, path: Path) -> None:
    """Show an image in the terminal by some means, and with the system's viewer if that is wanted."""
    from patchbag.cli.pictures import picture

    if shown := picture(path, means):
        print(shown)
    if launch:
        typer.launch(str(path))
