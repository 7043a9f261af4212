"""Where the class of a ``package.module:Class`` is searched. Separate from the schemes, so that a command that needs no
scheme imports none."""

from __future__ import annotations

from pathlib import Path

SEARCHED: list[str] = []  #: folders, in addition to the Python path


def search_here() -> None:
    """Search ``package.module:Class`` in the current directory too, as the command line does. A deleted directory is
    skipped."""
    try:
        SEARCHED[:] = [str(Path.cwd())]
    except FileNotFoundError:
        SEARCHED.clear()
