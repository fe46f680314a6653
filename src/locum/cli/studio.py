"""`locum studio`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from locum.cli import output


def studio(
    root: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Folder that holds your data and releases (default: this one).")
    ] = Path(),
    demo: Annotated[
        bool, typer.Option("--demo", help="Open it on built-in images in a new folder, to try everything.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on (default: any that is free).")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open a local web page: make a release, attack it, decide about it, receive one.

    It listens on this machine only, and reads nothing outside of FOLDER. The link that it prints works once.
    """
    from locum.studio import serve_studio

    if demo:
        from locum.recipes import make_studio_demo

        output.say("demo        preparing data and a release; this takes a few seconds")
        root = make_studio_demo(root)
        output.say(f"demo        {root} holds data that ship with scikit-learn, and a release of digits")
    serve_studio(root, port=port, browser=browser, announce=output.say)
