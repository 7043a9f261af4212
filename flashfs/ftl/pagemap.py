"""The plain page map (PFTL): every part is the engine's default. The reference for all the others."""

from __future__ import annotations

from typing import Any

from flashfs._parts import Greedy, PageBitmap, PageTable
from flashfs.ftl import Scheme
from flashfs.ftl.common import STRIPE, streams_for


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    return PageTable(ssd), PageBitmap(ssd), streams_for(ssd, options, "pagemap"), Greedy(ssd)


SCHEME = Scheme(
    name="pagemap",
    title="page map",
    paper="the textbook's; PFTL in the papers",
    about="one 4-byte PPA per LPA in DRAM; a page may go anywhere",
    replaces=(),
    scheme_oob=0,
    saved_bytes=lambda geometry: 4 * geometry.lpas,
    build=_build,
    options=(STRIPE,),
)
