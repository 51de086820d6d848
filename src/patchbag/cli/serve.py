# SPDX-License-Identifier: BSD-3-Clause
"""The command for the browser: serve."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from patchbag.cli import options, screen
from patchbag.cli.files import machine


@options.app.command()
def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of images, sorted into sub-folders or not.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8123,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's need the token that is printed.")
    ] = "127.0.0.1",
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    db: Annotated[
        str | None, typer.Option(metavar="URL", help="Database of the labels; default: a file in FOLDER/.patchbag.")
    ] = None,
    recipe: options.RecipeOption = "deep-pool",
    features: options.FeaturesOption = None,
    settings: options.SetOption = None,
    jobs: options.JobsOption = -1,
    cache: options.CacheOption = True,
    max_pixels: options.PixelsOption = None,
    seed: options.SeedOption = 0,
) -> None:
    """Sort, label, search and check a folder of images in the browser."""
    from patchbag.page.describing import prepare

    prepare()  # two processors import at a time
    import uvicorn

    from patchbag.page.app import create_app
    from patchbag.page.safety import HERE, new_token
    from patchbag.page.session import Page

    options.make_categorizer(recipe, features, settings, seed)  # a name that is none is said before anything is opened
    names = None if features is None else features.split(",")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with machine(jobs, cache, seed), socket.socket(family) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            raise ValueError(
                f"cannot listen at {host}, port {port}: {error.strerror}; name another port or host, as with --port 0, "
                "which takes one that is free"
            ) from error
        port = listening.getsockname()[1]
        page = Page(
            folder, db, recipe=recipe, features=names, settings=options.parse_settings(settings), seed=seed, jobs=jobs
        )
        for remark in page.remarks:
            screen.say(remark, "yellow")
        token = hashed = None
        hosts = [host]
        if host not in HERE:
            token, hashed = new_token()
            page.database.set_fact("token", hashed)
            hosts += [socket.gethostname(), socket.getfqdn()]
        shown = f"[{host}]" if ":" in host else host
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else shown
        address = f"http://{shown}:{port}/{f'?token={token}' if token else ''}"
        screen.result(address)
        application = create_app(page, hosts=hosts, token=hashed)
        config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
        if open_browser:
            import threading

            threading.Timer(1.0, typer.launch, [address]).start()
        uvicorn.Server(config).run(sockets=[listening])
