"""Chips on which FTLs have room. This is tried, not computed: a scheme reports its needs when it is built."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from flashfs.device import ENGINE_OOB, refusal
from flashfs.errors import BindError, RoomError, UsageError
from flashfs.ftl import SCHEMES
from flashfs.sizing.defaults import side_by_side
from flashfs.sizing.op import OP, OP_MOST, TRIED_PAGES, enough, grown
from flashfs.text import shown, shown_down
from nandimg import Geometry, GeometryError, Header, ImageError
from nandimg.geometry import BLOCKS_LIMIT, LPA_LIMIT


def refusals(geometry: Geometry) -> dict[str, BindError]:
    """{FTL: BindError} of the built-in FTLs that cannot be bound to such a chip."""
    found = {name: refusal(name, geometry) for name in SCHEMES}
    return {name: error for name, error in found.items() if error is not None}


def sized(size_bytes: int, given: Mapping[str, Any]) -> Geometry:
    """The geometry of a chip that exports ``size_bytes``; fields not in ``given`` follow from the size. Without a given
    over-provisioning, a small chip gets enough for every FTL. UsageError if it is too large, or if the
    over-provisioning looks like per cent."""
    given = {**given, **side_by_side(size_bytes, given)}
    if given.get("op", 0) >= OP_MOST:
        raise UsageError(
            f"op is {given['op']:g}, which is {100 * given['op']:g} %: did you mean {given['op'] / 100:g}?"
        )
    _check_size(size_bytes, given)
    try:
        geometry = Geometry.sized(size_bytes, **given)
    except GeometryError as error:
        raise UsageError(str(error)) from None
    if "op" in given or geometry.lpas > TRIED_PAGES:
        return geometry
    return grown(geometry, lambda one: not _short_of_room(one)) or geometry


def _check_size(size_bytes: int, given: Mapping[str, Any]) -> None:
    """UsageError if no chip of that shape can be so large."""
    shape = {**Geometry().as_dict(), "op": OP, **given}
    page_bytes, per_block, op = shape["page_bytes"], shape["pages_per_block"], shape["op"]
    most = int(min(LPA_LIMIT, BLOCKS_LIMIT * per_block) / (1 + op)) * page_bytes
    if size_bytes > most > 0:
        raise UsageError(
            f"size {shown(size_bytes)}: use {shown_down(most)} or less, with {per_block} pages of {shown(page_bytes)} "
            f"per block and over-provisioning of {100 * op:g} %"
        )


def lacking(geometry: Geometry) -> dict[str, str]:
    """{FTL: why} of the built-in FTLs that refuse such a chip, if it is large enough to be tried; BindError if all of
    them refuse it."""
    found = refusals(geometry) if geometry.lpas <= TRIED_PAGES else {}
    if len(found) < len(SCHEMES):
        return {name: str(error) for name, error in found.items()}
    ops = {name: enough_for(name, geometry) for name, error in found.items() if isinstance(error, RoomError)}
    known = {name: op for name, op in ops.items() if op is not None}
    if not known:
        raise next(iter(found.values()))
    first = min(known, key=lambda name: known[name])
    error, every = found[first], max(known.values())
    assert isinstance(error, RoomError)
    raise BindError(
        f"no FTL has room on this chip; {error.why}; use --op {known[first]:g} for {first}, {every:g} for all"
    )


def enough_for(name: str, geometry: Geometry) -> float | None:
    """The ``--op`` with which such a chip has room for that FTL; None if not found."""
    return enough(geometry, lambda one: not isinstance(refusal(name, one), RoomError))


def enough_for_all(geometry: Geometry) -> float | None:
    """The ``--op`` with which such a chip has room for every built-in FTL; None if not found."""
    return enough(geometry, lambda one: not _short_of_room(one))


def _short_of_room(geometry: Geometry) -> bool:
    """Whether any built-in scheme has too few blocks there. More blocks do not help against other refusals."""
    return any(isinstance(refusal(name, geometry), RoomError) for name in SCHEMES)


def first_mount_bytes(header: Header) -> dict[str, int]:
    """{FTL: bytes that its first mount allocates on the host's disk, in addition to the blank image}, with default
    options and DRAM. FTLs that want more NVRAM than an image can have are left out."""
    found, geometry = {}, header.geometry
    for name, of in SCHEMES.items():
        options = of.resolve({})
        with suppress(ImageError):  # more NVRAM than an image may have: binding refuses it
            with_regions = header.with_regions(of.nvram(geometry, options, None))
            bound = replace(with_regions, ftl=name, oob_used=ENGINE_OOB + of.oob_with(options))
            found[name] = max(0, bound.allocated_bytes - header.allocated_bytes)
    return found
