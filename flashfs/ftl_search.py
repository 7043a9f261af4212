"""Where a class is looked for that ``package.module:Class`` names. Apart from the schemes, so that a command that needs
none of them imports none."""

from __future__ import annotations

from pathlib import Path

SEARCHED: list[str] = []  #: folders, beside the Python path


def search_here() -> None:
    """From now on ``package.module:Class`` is looked for in the present directory too: what the command line does. One
    that was deleted has nothing to find."""
    try:
        SEARCHED[:] = [str(Path.cwd())]
    except FileNotFoundError:
        SEARCHED.clear()
