"""Everything that the HTML page shows of an image, as plain dicts and lists; the page itself is in _html.

One pass over the spare areas, one recovery in memory. What grows with the chip is folded before it gets here: blocks
into cells, pages into counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashfs.engine.blocks.pool import KIND_NAMES, STATE_NAMES
from flashfs.engine.views import block_map
from flashfs.inspect._image import header
from flashfs.inspect._log import _checkpoints, _saved, _trims
from flashfs.inspect._view import HEALTH_NAMES, View, opened

CELLS_MOST = 32_768  #: of the block map; a chip with more blocks has several in a cell
ROWS_MOST = 60  #: of a table that may have many
BINS_MOST = 40  #: of a histogram
KINDS = ("nothing", *(KIND_NAMES[kind] for kind in sorted(KIND_NAMES)), "unknown")
OPENED, SURVEYED, LOGGED = 0.1, 0.8, 0.9  #: shares of the work that are done by then
COLD_STATES = ("unknown", "blank")  #: of a block without a device that knows its state


def report(
    path: str | Path, trust: bool | str = False, progress: Callable[[float], None] | None = None
) -> dict[str, Any]:
    """What is in the image, for a page to be made of. Raises what `opened` raises. ``progress`` gets the share
    that is done, now and then: an estimate, by what takes most of the time on a full chip."""
    tell = progress or (lambda share: None)
    tell(0.0)
    head = header(path)
    with opened(path, trust) as view:
        ssd = view.device.ssd if view.device else None
        tell(OPENED)
        survey, pages = block_map.survey(view.chip, ssd, lambda share: tell(OPENED + share * (SURVEYED - OPENED)))
        tell(SURVEYED)
        blocks, log = _blocks(view, survey), _log(view)
        found = {
            "name": Path(path).name,
            "header": head,
            "note": view.note,
            "summary": _summary(view, blocks, pages),
            "blocks": _cells(view, blocks),
            "charts": _histograms(view, blocks),
            "pages": {name: n for name, n in pages.items() if n},
            "recovery": _recovery(view, log["checkpoints"]["rows"]),
            "log": log,
        }
        tell(LOGGED)
        return {**found, "scheme": _scheme(view)}


def _blocks(view: View, survey: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays with one item per block; ``state`` is an index of STATE_NAMES and COLD_STATES together."""
    if view.device:
        found = block_map.block_map(view.device.ssd)
    else:
        bare = len(STATE_NAMES) + COLD_STATES.index("unknown" if view.header.ftl else "blank")
        found = {
            "state": np.full(view.chip.blocks, bare),
            "valid": np.zeros(view.chip.blocks, np.int64),
            **block_map.bare(view.chip),
        }
    return {**found, **survey, "kind": np.minimum(survey["kind"], len(KINDS) - 1)}


# --- the block map


def _cells(view: View, blocks: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The block map: for each field one value per cell. A cell of several blocks has the mean of their page counts, the
    maximum of their erases and orders, and the rest from the first of them."""
    n = view.chip.blocks
    each = -(-n // CELLS_MOST)
    starts = np.arange(0, n, each)
    sizes = np.diff([*starts, n])

    def mean(name: str) -> list[float]:
        sums = np.add.reduceat(blocks[name].astype(np.int64), starts)
        return (sums if each == 1 else np.round(sums / sizes, 1)).tolist()

    def most(name: str) -> list[int]:
        return np.maximum.reduceat(blocks[name].astype(np.int64), starts).tolist()

    def first(name: str, words: Sequence[str]) -> dict[str, Any]:
        return {"name": name, "words": list(words), "values": np.minimum(blocks[name], len(words) - 1)[starts].tolist()}

    fields: list[dict[str, Any]] = [
        first("state", [*STATE_NAMES, *COLD_STATES]),
        {"name": "valid", "unit": f"of {view.per_block}", "values": mean("valid"), "top": view.per_block},
        {"name": "programmed", "unit": f"of {view.per_block}", "values": mean("programmed")},
        {"name": "torn", "unit": "pages", "values": mean("torn")},
        {"name": "erases", "values": most("erases")},
        first("kind", KINDS),
        first("stream", [*view.stream_names, "none"]),
        {"name": "order", "values": most("order")},
        first("health", HEALTH_NAMES),
    ]
    return {
        "item": "block", "title": "Blocks", "n": len(starts), "each": each, "total": n, "fields": fields,
        "views": [
            {"label": "valid pages", "field": "valid", "masks": ["free", "pending", "meta", "bad", "unknown", "blank"]},
            {"label": "state", "field": "state"},
            {"label": "erases", "field": "erases", "masks": ["bad"]},
            {"label": "age (order of opening)", "field": "order", "masks": ["free", "bad", "blank"]},
        ],
    }  # fmt: skip


# --- figures and histograms


def _summary(view: View, blocks: dict[str, NDArray[Any]], pages: dict[str, int]) -> dict[str, Any]:
    geometry, good = view.header.geometry, blocks["erases"][blocks["health"] == 0]
    out: dict[str, Any] = {
        "for the host": f"{geometry.lpas:,} pages",
        "of flash": f"{geometry.pages:,} pages",
        "blocks": geometry.blocks,
    }
    if view.device:
        states = np.bincount(blocks["state"], minlength=len(STATE_NAMES))
        late = view.device.ssd.validity.late  # then live pages may be superseded ones
        mapped = len(block_map.mapped(view.device.ssd)) if late else pages["live"]
        out["mapped"] = f"{100 * mapped / geometry.lpas:.1f} %"
        out["free blocks"] = int(states[STATE_NAMES.index("free")])
        out["bad blocks"] = int(states[STATE_NAMES.index("bad")])
        out["mounts"] = view.device.ssd.mounts
    out["erases, mean"] = f"{good.mean():,.2f}" if len(good) else "-"
    out["erases, spread"] = int(good.max() - good.min()) if len(good) else "-"
    return out


def _histograms(view: View, blocks: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    good = blocks["health"] == 0
    out = [bars("Wear", "erases of a block", blocks["erases"][good], "Blocks that have gone bad are left out.")]
    if view.device:
        used = np.isin(blocks["state"], [STATE_NAMES.index("open"), STATE_NAMES.index("closed")])
        about = "Of open and closed blocks: what is left of this is cleaning's work."
        out.append(bars("Valid pages", "valid pages in a block", blocks["valid"][used], about, (0, view.per_block)))
    return out


def bars(
    title: str, x: str, values: NDArray[Any], about: str = "", span: tuple[int, int] | None = None
) -> dict[str, Any]:
    """A histogram of whole numbers, in BINS_MOST bars at most: over ``span``, or as far as they go."""
    low, high = span or ((int(values.min()), int(values.max())) if len(values) else (0, 0))
    step = -(-(high - low + 1) // BINS_MOST)
    counts = np.bincount((values.astype(np.int64) - low) // step, minlength=(high - low) // step + 1)
    names = [(low + index * step, min(high, low + index * step + step - 1)) for index in range(len(counts))]
    found = [[f"{a}" if a == b else f"{a} to {b}", int(n)] for (a, b), n in zip(names, counts, strict=True)]
    return {"chart": "bars", "title": title, "x": x, "y": "blocks", "about": about, "bars": found}


# --- recovery, log, scheme


def _recovery(view: View, checkpoints: list[dict[str, Any]]) -> dict[str, Any] | None:
    """How a mount recovers, and from which checkpoint: what that knows needs no scan."""
    if view.device is None:
        return None
    found = view.device.recovery
    last = next((row for row in checkpoints if row["whole"]), None)
    knew = {"checkpoint": last["checkpoint"], "up to write": last["seq"]} if last else {"checkpoint": None}
    figures = {name.replace("_", " "): value for name, value in found.figures.items()}
    return {
        "clean": found.clean,
        "summary": found.summary(),
        "knew": {**knew, "written since": max(0, view.device.ssd.seq - (last["seq"] if last else 0)), **figures},
        "alarms": _some([{"alarm": alarm} for alarm in found.alarms]),
        "steps": [
            {name: value for name, value in asdict(step).items() if name not in ("wall_ms",)} for step in found.steps
        ],
    }


def _log(view: View) -> dict[str, Any]:
    """What the metadata log still holds, newest first; only the beginning of long tables."""
    trims = _trims(view)[::-1]
    return {"checkpoints": _some(_checkpoints(view)), "trims": _some(trims), "nvram": _some(_saved(view))}


def _some(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": rows[:ROWS_MOST], "total": len(rows)}


def _scheme(view: View) -> dict[str, Any] | None:
    if view.device is None or view.known is None:
        return None
    known = view.known
    return {
        "name": known.name, "title": known.title, "paper": known.paper, "about": known.about,
        "charts": known.charts(view.device),
    }  # fmt: skip
