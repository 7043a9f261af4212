"""``flashfs new-ftl``: the files of a new FTL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashfs.cli import options, show


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Small letters, digits and underscores; a letter first.")],
    python: Annotated[bool, typer.Option("--python", help="Make one file with a class in Python instead.")] = False,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="The checkout; with --python, where the file goes.")
    ] = Path(),
    as_json: options.Json = False,
) -> None:
    """Make the files of a new FTL.

    In a checkout of flashfs: a folder with a compiled one. With --python: one file with a class. Both are a page map
    that passes `flashfs check`; change what your idea changes.
    """
    from flashfs import scaffold

    if python:
        path, spec = scaffold.plugin(name, folder)
        made, commands = [path], [f"flashfs check {spec}"]
    else:
        made = scaffold.compiled(name, folder)
        commands = [
            "make setup", f"flashfs check {name}", f"python tests/engine/test_golden.py {name}",
            f"python tests/replay/test_golden_replay.py {name}",
        ]  # fmt: skip
    if as_json:
        show.result({"name": name, "files": [str(path) for path in made], "next": commands}, as_json=True)
        return
    for path in made:
        print(path)
    print("next:", *commands, sep="\n    ")
