"""Equal ground: options that every FTL of a comparison gets alike, because they decide figures and no paper is about
them.

Schemes have defaults of their own: LeaFTL a write buffer of 8 MiB and blocks filled one by one, the page map 256 KiB
and stripes of four pages. Alone, each keeps its defaults. Side by side, all get

- ``buffer``: the largest default write buffer of any of them on this chip; no more than a DRAM budget leaves each;
- ``stripe``: whole blocks if one of them has no ``stripe`` option, else the option's default;
- ``wear_spread``: the value that follows from the chip's endurance;
- ``gc_reserve``: as many free blocks as the page map's streams are wide, at least three, and at least one per die if
  one of them cleans superblocks; not set if the chip cannot spare them;
- ``moved``: if entries of moved pages wait in one of them, in all whose map is in flash; in none, unless all can.

An option given for all (``--opt buffer=64``) is equal too. An option given for one (``--opt leaftl.buffer=64``), and
NVRAM that one has and another lacks, is a difference, and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import nandimg
from flashfs.device import Device, default_buffer, wear_spread
from flashfs.errors import FlashfsError
from flashfs.ftl import Scheme, scheme
from flashfs.ftl.common import BLOCKS_A_STREAM, STRIPE
from flashfs.ftl.demand_paged import CMT_BYTES, MOVED

if TYPE_CHECKING:
    from flashfs.replay.play import Setup
    from nandimg import Geometry

LEVELLED = ("buffer", "stripe", "wear_spread", "gc_reserve", MOVED.name)  #: the options that are set alike
AMPLE_BYTES_PER_LPA = 16  #: of DRAM, beside the write buffer: with so much no default is made smaller
RESERVE_LEAST = 3  #: blocks: the most that any scheme of flashfs asks for on one die
RESERVE_SHARE = 8  #: the reserve is at most 1/8 of the blocks beyond the data; if not, each scheme reserves what it can
#: (option, what it is called, its unit)
NAMES = {
    "buffer": ("a write buffer", "pages"),
    "stripe": ("a stripe", "pages"),
    "wear_spread": ("a wear spread", "erases"),
    "gc_reserve": ("a reserve", "blocks"),
    "moved": ("room for entries of moved pages", "per cent of the cache's"),
    "nvram": ("NVRAM of its own", "bytes"),
}


def level(setups: Sequence[Setup], given: Mapping[str, Any]) -> list[Setup]:
    """The same setups, of one FTL each, on equal ground; ``given`` are the options that were given for all. A single
    FTL is left unchanged, and so are images, which have their own options."""
    if len({setup.ftl for setup in setups}) < 2 or setups[0].image is not None:
        return list(setups)
    wanted = common([setup.ftl for setup in setups], setups[0].geometry)
    for name in wanted:
        told = _told(name, given)
        wanted[name] = wanted[name] if told is None else told
    refused: set[str] = set()
    if setups[0].dram is not None and _told("buffer", given) is None:
        free = [on(setup, wanted) for setup in setups if "buffer" not in setup.options]
        left = {setup.ftl: _buffer_within(setup, wanted["buffer"]) for setup in free}
        refused = {ftl for ftl, pages in left.items() if pages is None}
        wanted["buffer"] = min((pages for pages in left.values() if pages is not None), default=wanted["buffer"])
    out = [on(setup, _without(wanted, "buffer") if setup.ftl in refused else wanted) for setup in setups]
    nvram = min(nvram_of(scheme(setup.ftl), setup.geometry, setup.options, setup.dram) for setup in out)
    return [replace(setup, ground={**wanted, "nvram": nvram}) for setup in out]


def on(setup: Setup, wanted: Mapping[str, int]) -> Setup:
    """The setup with the options ``wanted`` of a comparison, which become its ``ground``. The setup's own options take
    precedence."""
    known = {option.name for option in scheme(setup.ftl).all_options()} & set(LEVELLED)
    even = {name: value for name, value in wanted.items() if name in known}
    return replace(setup, options={**even, **setup.options}, ground=dict(wanted))


def _without(wanted: Mapping[str, int], name: str) -> dict[str, int]:
    return {key: value for key, value in wanted.items() if key != name}


def _buffer_within(setup: Setup, buffer: int) -> int | None:
    """Pages of a write buffer of ``buffer`` that the setup's budget of DRAM leaves; None if the budget is refused. The
    replay itself reports that, with a buffer of the scheme's own, so that the least it names is the least."""
    geometry = setup.geometry
    if setup.dram is None or setup.dram >= AMPLE_BYTES_PER_LPA * geometry.lpas + 2 * buffer * geometry.page_bytes:
        return buffer
    image = nandimg.memory_image(geometry, setup.backend)
    try:
        device = Device.start(image, setup.ftl, setup.options, dram=setup.dram, plp=setup.plp, sync="none",
                              buffer_at_most=True)
    except FlashfsError:
        return None
    with device:
        return int(device.ssd.buffer.slots)


def _told(name: str, given: Mapping[str, Any]) -> int | None:
    """The value of an option that was given for all; None if none was, or one that means "the scheme's default"."""
    text = str(given.get(name, ""))
    value = int(text) if text.isdecimal() else -1
    return value if value > 0 or (value == 0 and name in ("buffer", MOVED.name)) else None


def common(ftls: Sequence[str], geometry: Geometry) -> dict[str, int]:
    """{option: value} that all of ``ftls`` get on this chip."""
    schemes = [scheme(ftl) for ftl in ftls]
    striped = all(any(option.name == STRIPE.name for option in of.options) for of in schemes)
    out = {
        "buffer": max(default_buffer(of, geometry) for of in schemes),
        "stripe": int(STRIPE.default) if striped else geometry.pages_per_block,
        "wear_spread": wear_spread({"wear_spread": 0}, geometry),
    }
    waits = [_default(of, MOVED.name) for of in schemes if _default(of, CMT_BYTES.name) is not None]
    if any(waits):
        out[MOVED.name] = 0 if None in waits else max(int(share or 0) for share in waits)
    spare = geometry.blocks - -(-geometry.lpas // geometry.pages_per_block)
    reserve = max(RESERVE_LEAST, min(geometry.dies, spare // BLOCKS_A_STREAM))
    if any(of.by_superblock for of in schemes):
        reserve = max(reserve, geometry.dies)
    if spare >= RESERVE_SHARE * reserve:
        out["gc_reserve"] = reserve
    return out


def _default(of: Scheme, name: str) -> int | str | None:
    """Of an option of the scheme; None if it has no such option."""
    return next((option.default for option in of.options if option.name == name), None)


def nvram_of(of: Scheme, geometry: Geometry, options: Mapping[str, Any], dram: int | None) -> int:
    """Bytes of NVRAM that the scheme asks for with ``dram`` bytes of DRAM."""
    return sum(of.nvram(geometry, of.resolve(dict(options)), dram).values())


def differences(setup: Setup) -> list[str]:
    """A line for each setting in which the setup differs from its comparison's ground."""
    if setup.ground is None:
        return []
    of = scheme(setup.ftl)
    options = of.resolve(setup.options)
    has = {name: options.get(name) for name in NAMES}
    if has["buffer"] == -1:
        has["buffer"] = default_buffer(of, setup.geometry)
    has["wear_spread"] = wear_spread(options, setup.geometry)
    has["nvram"] = nvram_of(of, setup.geometry, setup.options, setup.dram)
    out = []
    for name, wanted in setup.ground.items():
        if has[name] is not None and has[name] != wanted:
            what, unit = NAMES[name]
            out.append(f"{setup.ftl}: {what} of {has[name]:,} {unit}, where the ground of the others is {wanted:,}")
    return out


def stood_on(device: Device, dram: int | None) -> dict[str, Any]:
    """The settings that a result was made with, compared or not. ``stripe`` is None if the placement has none,
    ``moved`` if the scheme has no such option."""
    geometry, ssd = device.nand.geometry, device.ssd
    return {
        "dies": geometry.dies,
        "channels": geometry.channels,
        "op": round(geometry.op, 6),
        "buffer": ssd.buffer.slots,
        "stripe": device.options.get("stripe"),
        "wear_spread": ssd.wear.spread,
        "gc_reserve": ssd.gc_reserve,
        "moved": device.options.get(MOVED.name),
        "nvram": nvram_of(scheme(device.ftl), geometry, device.options, dram),
    }
