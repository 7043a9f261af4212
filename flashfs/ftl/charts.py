"""Charts of a scheme for the HTML page of ``flashfs dump --html``: plain dicts, one a chart.

``facts`` are named figures, ``bars`` and ``counted`` histograms, ``lines`` lines with the points that they should
meet, ``cells`` a map with a cell for each item, ``picture`` and ``runs`` charts that any map has. The page knows these
kinds of chart, but no scheme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flashfs.engine.views.block_map import Mapped

PICTURE = (256, 128)  #: columns and rows of the picture of a map
CELLS_MOST = 32_768
NO_PAGE = 2**32 - 1  #: in an array of places: nowhere
AT_ONCE = 1 << 20  #: LPAs counted at a time: larger arrays would need as much memory as the map itself


def facts(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures by name; values other than None, numbers and texts are left out."""
    plain = {name: value for name, value in figures.items() if value is None or isinstance(value, int | float | str)}
    return {"chart": "facts", "facts": plain}


def bars(title: str, x: str, y: str, found: Sequence[list[Any]], about: str = "") -> dict[str, Any]:
    """Counts ``[label, n]``, drawn in this order."""
    return {"chart": "bars", "title": title, "x": x, "y": y, "about": about, "bars": list(found)}


def counted(title: str, x: str, y: str, values: Sequence[int], about: str = "", most: int = 32) -> dict[str, Any]:
    """How often each of the values (whole numbers from 0 on) occurs; they are grouped into ranges if there are more
    than ``most``."""
    step = -(-(max(values, default=0) + 1) // most)
    counts = np.bincount(np.asarray(values, np.int64) // step)
    names = [f"{index * step}" if step == 1 else f"{index * step} to {index * step + step - 1}"
             for index in range(len(counts))]  # fmt: skip
    return bars(title, x, y, [[name, int(n)] for name, n in zip(names, counts, strict=True)], about)


def cells(
    title: str, item: str, fields: list[dict[str, Any]], views: list[dict[str, str]], about: str = "",
    total: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A map with a cell for each ``item``. A field has a "name", "values" (a number or None each) and perhaps "unit"
    and "top", its greatest possible value; a view has a "label" and the "field" that colours it. Items beyond
    CELLS_MOST are not drawn, so their values may be missing: ``total`` then gives their number."""
    total = len(fields[0]["values"]) if total is None else total
    shown = [{**field, "values": field["values"][:CELLS_MOST]} for field in fields]
    if total > CELLS_MOST:
        about += f" The first {CELLS_MOST:,} of {total:,}."
    n = min(total, CELLS_MOST)
    return {
        "chart": "map", "title": title, "item": item, "about": about, "n": n, "each": 1, "total": n,
        "fields": shown, "views": views,
    }  # fmt: skip


def lines(
    title: str, x: str, y: str, x_most: int, bands: list[dict[str, Any]], about: str = ""
) -> dict[str, Any]:
    """Lines in bands, one above the other: a band has a "label", "y_most", "lines" (each with "x1", "y1", "x2", "y2", a
    "kind" that colours it and a "title") and "points" (each [x, y, whether a line meets it])."""
    return {"chart": "lines", "title": title, "x": x, "y": y, "x_most": max(1, x_most), "about": about, "bands": bands}


def picture(device: Any, where: Mapped) -> dict[str, Any]:
    """Where the LPAs lie: LPAs to the right, PPAs upwards, each cell with the number of those that fall into it."""
    pages = device.ssd.nand.geometry.pages
    columns, rows = min(PICTURE[0], where.total), min(PICTURE[1], pages)
    counts = np.zeros(columns * rows, np.int64)
    for at in range(0, len(where), AT_ONCE):
        column = where.lpas[at : at + AT_ONCE].astype(np.int64) * columns // where.total
        row = where.ppas[at : at + AT_ONCE].astype(np.int64) * rows // pages
        counts += np.bincount(row * columns + column, minlength=columns * rows)
    return {
        "chart": "density", "title": "Where the LPAs lie", "x": "LPA", "y": "PPA", "x_most": where.total - 1,
        "y_most": pages - 1, "columns": columns, "rows": rows, "cells": counts.tolist(),
        "about": "A line is a range that was written in one go and still lies in order; a cloud is what was written "
                 "here and there.",
    }  # fmt: skip


def runs(device: Any, where: Mapped) -> dict[str, Any]:
    """How long the stretches of LPAs are that lie side by side in flash: by powers of two, in pages of the map."""
    lpas, ppas, per_block = where.lpas, where.ppas, device.ssd.nand.pages_per_block
    starts = np.ones(len(where) + 1, bool)  # a run begins there; the last place is the end of the last run
    for at in range(0, len(where) - 1, AT_ONCE):
        part = slice(at, at + AT_ONCE + 1)
        parts = (np.diff(lpas[part]) != 1) | (ppas[part][1:] != ppas[part][:-1] + np.uint32(1))
        parts |= ppas[part][1:] % per_block == 0  # a run ends with its block
        starts[at + 1 : at + 1 + len(parts)] = parts
    lengths = np.diff(np.flatnonzero(starts))
    power = np.floor(np.log2(lengths)).astype(np.int64) if len(lengths) else np.zeros(0, np.int64)
    counts = np.bincount(power)
    names = ["1" if index == 0 else f"{2**index} to {2 ** (index + 1) - 1}" for index in range(len(counts))]
    found = [[name, int(n)] for name, n in zip(names, counts, strict=True)]
    about = f"{len(where):,} mapped LPAs lie in {len(lengths):,} runs: what a map of ranges would hold."
    return bars("Runs of the map", "pages in a run", "runs", found, about)
