"""The image as one HTML page that needs nothing else: no network, no file beside it.

What comes from the image is not trusted. It reaches the page as text that jinja2 escapes, or as JSON in which no tag
can begin; and the page lets the browser run one script, known by its hash, and load nothing at all.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from flashfs.errors import FlashfsError, UsageError
from flashfs.inspect._report import report
from flashfs.text import printable, shown

HERE = Path(__file__).parent
CHART = {"width": 440, "height": 170, "left": 44, "bottom": 34, "top": 8}  #: of a histogram, in its own units


def page(path: str | Path, trust: bool | str = False, progress: Callable[[float], None] | None = None) -> str:
    """The page about the image at ``path``. ``progress`` gets the share that is done, now and then."""
    return render(report(path, trust, progress))


def write(
    path: str | Path, out: str | Path, *, force: bool = False, trust: bool | str = False,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Make the page and put it at ``out``: whole or not at all. An existing file is refused unless ``force``, and the
    image itself in any case. Returns {"file", "bytes", "blocks", "note"}. ``progress`` as for ``page``."""
    out = Path(out)
    check_place(Path(path), out, force)
    found = report(path, trust, progress)
    made = put(render(found), out, force)
    return {"file": str(out), "bytes": made, "blocks": found["blocks"]["total"], "note": found["note"]}


def put(page: str, out: Path, force: bool, option: str = "--html") -> int:
    """Write the page to ``out``, whole or not at all; returns its bytes. FlashfsError, which names ``option``, if that
    fails."""
    made = page.encode()
    try:
        with tempfile.NamedTemporaryFile(dir=out.parent, prefix=".flashfs-", delete=False) as file:
            half = Path(file.name)
            try:
                file.write(made)
                file.flush()
                umask = os.umask(0)
                os.umask(umask)
                half.chmod(0o666 & ~umask)  # as any file that a command writes; a temporary one is for its owner alone
                _put(half, out, force, option)
            finally:
                half.unlink(missing_ok=True)
    except OSError as error:
        raise FlashfsError(f"{option} {out}: {error.strerror}") from None
    return len(made)


def check_place(path: Path, out: Path, force: bool, option: str = "--html") -> None:
    """Refuse early what would be refused late: reading a large image takes a while."""
    try:
        exists = out.exists() or out.is_symlink()
        if exists and out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"{option} {out} is the image itself; use another name")
        if exists and not out.is_file():
            raise UsageError(f"{option} {out}: not a regular file; use the name of a new one")
    except OSError as error:
        raise FlashfsError(f"{option} {out}: {error.strerror}") from None
    if exists and not force:
        raise _exists(out, option)
    if not out.parent.is_dir():
        raise FlashfsError(f"{option} {out}: there is no directory {out.parent}")


def _exists(out: Path, option: str) -> FlashfsError:
    return FlashfsError(f"{option} {out}: exists already; use another name, or --force to overwrite it")


def _put(half: Path, out: Path, force: bool, option: str) -> None:
    """Give the whole file its name. Without ``force``, a file that was made there meanwhile stays."""
    if force:
        half.replace(out)
        return
    try:
        os.link(half, out)
    except FileExistsError:
        raise _exists(out, option) from None
    except OSError:  # a file system without links
        with suppress(FileNotFoundError):
            if out.exists():
                raise _exists(out, option) from None
        half.replace(out)


def render(found: dict[str, Any]) -> str:
    """The page about what `report` found."""
    script, style = ((HERE / name).read_text() for name in ("report.js", "report.css"))
    return _template().render(
        found, script=Markup(script), style=Markup(style), script_hash=_hash(script), style_hash=_hash(style)
    )  # fmt: skip


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_plain,
    )  # fmt: skip
    environment.filters.update(size=shown, cell=_cell, columns=_columns, words=lambda text: str(text).replace("_", " "))
    environment.globals.update(geometry=CHART, scaled=_scaled, shares=_shares)
    return environment.get_template("report.html")


def _hash(text: str) -> str:
    """The hash by which a content security policy names the text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _plain(value: Any) -> Any:
    """For every text that a template puts out, before it is escaped: control characters and bytes that are no UTF-8
    become escapes."""
    return printable(value) if type(value) is str else value


def _cell(value: Any) -> str:
    """One value of a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return printable(str(value))


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """The names of a table's columns, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _scaled(bars: list[list[Any]]) -> list[dict[str, Any]]:
    """The bars of a histogram with their places: the highest reaches the top, and none above 0 is invisible."""
    top = max((n for _, n in bars), default=0) or 1
    width = (CHART["width"] - CHART["left"]) / max(1, len(bars))
    room = CHART["height"] - CHART["bottom"] - CHART["top"]
    out = []
    for index, (label, n) in enumerate(bars):
        high = max(1.0, room * n / top) if n else 0.0
        out.append({
            "label": label, "n": n, "x": round(CHART["left"] + index * width, 2), "width": round(width * 0.86, 2),
            "y": round(CHART["top"] + room - high, 2), "height": round(high, 2),
        })  # fmt: skip
    return out


def _shares(counts: dict[str, int]) -> list[dict[str, Any]]:
    """The parts of a divided bar 1000 units long."""
    total, at, out = sum(counts.values()) or 1, 0.0, []
    for name, n in counts.items():
        width = 1000 * n / total
        out.append({"name": name, "n": n, "x": round(at, 2), "width": round(width, 2), "percent": 100 * n / total})
        at += width
    return out
