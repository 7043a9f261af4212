"""LeaFTL's line in the registry; the scheme itself is compiled, in leaftl.pyx."""

from __future__ import annotations

import struct
from typing import Any

from flashfs import _block_map
from flashfs._defaults import Greedy, PageBitmap
from flashfs.ftl import Option, Scheme, charts, leaftl
from flashfs.ftl.common import streams_for

NO_PAGE = 2**32 - 1  #: in a page's list: a neighbour of another run, or none
BUFFER_BYTES = 8 << 20


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    mapping = leaftl.LearnedMap(ssd, options["gamma"], options["compact_every"])
    placement = streams_for(ssd, options, "leaftl", by_block=True, pads=options["pad"] == "block")
    return mapping, PageBitmap(ssd), placement, Greedy(ssd)


def _describe_oob(raw: bytes) -> dict[str, Any]:
    """The stamp of a page: the LPAs of the pages before and behind it that were programmed with it."""
    listed = [None if lpa == NO_PAGE else lpa for (lpa,) in struct.iter_unpack("<I", raw[: len(raw) // 8 * 8])]
    return {"before": listed[: len(listed) // 2], "behind": listed[len(listed) // 2 :]} if listed else {}


def _map(device: Any) -> dict[str, Any]:
    """The whole table in figures."""
    return {"gamma": device.ssd.mapping.gamma, **device.ssd.mapping.survey()}


def _charts(device: Any) -> list[dict[str, Any]]:
    where = _block_map.locations(device.ssd)
    return [charts.facts(_map(device)), charts.picture(device, where), charts.runs(device, where)]


SCHEME = Scheme(
    name="leaftl",
    title="LeaFTL",
    paper="J. Sun et al., LeaFTL: A Learning-based Flash Translation Layer for Solid-State Drives, ASPLOS 2023",
    about="line segments of 8 bytes, learned from runs of pages that lie in LPA order",
    replaces=("mapping", "placement"),
    scheme_oob=leaftl.oob_bytes(0),
    oob_for=lambda options: leaftl.oob_bytes(int(options.get("gamma", 0))),
    saved_bytes=lambda geometry: leaftl.saved_bytes(geometry.lpas),
    build=_build,
    options=(
        Option("gamma", 0, "pages by which a learned segment may be wrong; each takes 8 bytes of OOB a page",
               high=16, fixed=True),
        Option("pad", "open", "what a flush does with a half-filled block: goes on in it later, or fills it with pads",
               choices=("open", "block")),
        Option("compact_every", 1_000_000, "pages written between compactions of the whole table; 0: never",
               high=1 << 40),
    ),
    buffer_bytes=BUFFER_BYTES,
    buffer_in_order=True,
    describe_oob=_describe_oob,
    views={"map": _map},
    charts=_charts,
)  # fmt: skip
