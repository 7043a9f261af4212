"""Remap-SSD's line in the registry; the scheme itself is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashfs.engine.views import block_map
from flashfs.errors import BindError, UsageError
from flashfs.ftl import BYTES, Option, Scheme, charts
from flashfs.ftl.common import STRIPE, spare_for, spread_map, streams_for, superblocks_for
from flashfs.ftl.remapssd.counts import ReferenceCounts
from flashfs.ftl.remapssd.dedup import TableDeduplication
from flashfs.ftl.remapssd.fingerprints import Prints
from flashfs.ftl.remapssd.flashlog import LOGGED
from flashfs.ftl.remapssd.mapping import RemapTable
from flashfs.ftl.remapssd.placement import EntryRoom, RemapGreedy, RemapSuperblocks
from flashfs.ftl.remapssd.rivals import GlobalLog, GlobalLogInFlash, IdealRmm
from flashfs.ftl.remapssd.rmm import REGION, Rmm

NO_PAGE = 2**32 - 1
RMM_MOST = 3 << 30  #: largest default: an image's NVRAM has 4 GiB at most, also for the write buffer and the rivals
RMM_BYTES = 10  #: of NVRAM for each LPA: the paper's ratio of 80 MB for 32 GiB
LEAST_SEGMENTS = 24
FRONT_BYTES = 64  #: before the segments
ENTRY_BYTES = {"remap": 16, "command": 24}
LOGS = {"nlog": GlobalLog, "flog": GlobalLogInFlash}  #: rivals with one log of all entries
RIVALS = {**LOGS, "opt": IdealRmm}
SUPERBLOCK_ENDS = 4  #: superblocks in which the move of a superblock's pages may end
RESERVE_SHARE = 20  #: one segment in so many is reserved for pages that move


def _rmm_bytes(geometry: Any, options: dict[str, Any]) -> int:
    """Bytes of NVRAM for entries: the option's, or the paper's share; whole segments."""
    segment = int(options["segment"])
    wanted = options["nvram"] or min(RMM_MOST, max(RMM_BYTES * geometry.lpas, LEAST_SEGMENTS * segment))
    return max(4, wanted // segment) * segment


def _nvram(geometry: Any, options: dict[str, Any], dram: int | None) -> dict[str, int]:
    """The region for entries. A global log also keeps its entries by superblock, so it gets extra bytes for what its
    segments leave unused; a rival without a limit gets twice an entry for each LPA."""
    segment = int(options["segment"])
    if segment % 8:
        raise BindError(f"option segment={segment}: use a multiple of 8")
    slack = 4 * segment * (geometry.blocks // geometry.dies + 1)
    least = {
        "remap": _rmm_bytes(geometry, options),
        "nlog": _rmm_bytes(geometry, options) + slack,
        "flog": _rmm_bytes(geometry, options) + slack,
        "opt": 2 * ENTRY_BYTES[options["atomic"]] * geometry.lpas + slack,
    }
    return {} if options["rival"] == "none" else {REGION: FRONT_BYTES + least[options["rival"]]}


def _build(ssd: Any, options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    segments = (ssd.nand.region(REGION) or (0, 0))[1] // options["segment"]
    try:
        entry, rival = ENTRY_BYTES[options["atomic"]], options["rival"]
        log = [_rmm_bytes(ssd.nand.geometry, options) // entry] if rival in LOGS else []
        rmm = RIVALS.get(rival, Rmm)(ssd, options["segment"], entry, max(6, segments // RESERVE_SHARE), *log)
    except ValueError as error:
        raise BindError(f"remapssd: {error}") from None
    prints = None
    if options["dedup"] == "on":
        if ssd.buffer.in_nvram:
            raise BindError("remapssd: dedup=on does without a write buffer, so --plp would protect nothing")
        if options["rival"] == "none":
            raise BindError("remapssd: rival=none does not remap, so dedup=on would find nothing to do")
        prints = Prints(ssd.nand.blocks * ssd.nand.pages_per_block, 1000 * options["hash_us"])
    mapping = RemapTable(ssd, rmm, options["watermark"], options["references"], prints=prints,
                         remaps=options["rival"] != "none")  # fmt: skip
    if prints is not None:
        TableDeduplication(ssd, mapping, prints, options["verify"] == "on")
    stripe = options["stripe"]
    superblocks = _by_superblock(ssd, options)
    placement = superblocks_for(ssd, options, "remapssd", stripe) if superblocks else (
        streams_for(ssd, options, "remapssd"))  # fmt: skip
    # A block's pages go to the open blocks of cleaning, each in another superblock, and to those opened after them.
    ends = SUPERBLOCK_ENDS if superblocks else max(SUPERBLOCK_ENDS, 2 * placement.width_gc)
    room = EntryRoom(ssd, mapping, options["lookups"] == "alone", ends)
    if options["rival"] == "flog":         # its log pages are on parallel dies
        spread_map(ssd, {"map_dies": 0}, placement)
    return mapping, mapping.counts, placement, (RemapSuperblocks if superblocks else RemapGreedy)(ssd, room)


def _by_superblock(ssd: Any, options: dict[str, Any]) -> bool:
    """Whether the chip has room for superblocks: one open for the host, one for cleaning, one in reserve."""
    dies = int(ssd.nand.dies)
    try:
        spare_for(ssd, options, "remapssd", 2 * dies, dies)
    except BindError:
        return False
    return dies > 1


def _map(device: Any) -> dict[str, Any]:
    """How full the page table is, how many pages several LPAs share, and the entries in NVRAM."""
    mapping = device.ssd.mapping
    mapped = mapping.named()
    references = mapping.references()
    pages = sum(references[1:])
    return {
        "entries": device.ssd.lpas,
        "mapped": mapped,
        "pages": pages,
        "shared_pages": sum(references[2:]),
        "lpas_a_page": round(mapped / pages, 4) if pages else 0,
        "most_references": max((n for n, count in enumerate(references) if count and n), default=0),
        "remapped": mapping.rmm.valid_n,
        "rmm_entries": mapping.rmm.used_n,
        "rmm_capacity": mapping.rmm.capacity(),
        "segments_free": mapping.rmm.free_n,
        "segments": mapping.rmm.segments,
    }


def _references(device: Any) -> list[dict[str, Any]]:
    """How many pages have each number of references."""
    return [{"references": n, "pages": count} for n, count in enumerate(device.ssd.mapping.references()) if n]


def _there(what: str, number: int, count: int, device: Any) -> None:
    if not 0 <= number < count:
        raise UsageError(f"{what} {number}: {device.path} has {what}s 0 to {count - 1}")


def _segments(device: Any, superblock: int | None) -> dict[str, Any]:
    """The entries of a superblock in NVRAM, valid or not, in their order."""
    rmm = device.ssd.mapping.rmm
    groups = rmm.groups_of()
    if superblock is None:
        superblock = max(groups, key=lambda group: group["entries"], default={"superblock": 0})["superblock"]
    _there("superblock", superblock, device.nand.blocks // device.nand.dies, device)
    return {"superblock": superblock, "entries": rmm.entries_of(superblock)}


def _sharers(device: Any, ppa: int | None) -> dict[str, Any]:
    """The LPAs at a page: that of its OOB, if it is still there, and those of entries."""
    mapping = device.ssd.mapping
    if ppa is None:
        ppa = mapping.most_shared()
    _there("PPA", ppa, device.nand.blocks * device.nand.pages_per_block, device)
    return {"ppa": ppa, "references": mapping.counts.count_of(ppa), "lpas": mapping.sharers(ppa),
            "by_entries": mapping.rmm.entries_at(ppa)}  # fmt: skip


def _describe_logged(number: int, raw: bytes) -> dict[str, Any]:
    """A page of a log in flash: its entries, the oldest first."""
    rows = np.frombuffer(raw[: len(raw) // LOGGED.itemsize * LOGGED.itemsize], LOGGED)
    mask = np.uint64(2**48 - 1)
    return {
        "log_page": number,
        "entries": [
            {"lpa": int(row["lpa"]), "ppa": int(row["ppa"]), "seq": int(row["word"] & mask),
             "move": bool(int(row["word"]) >> 48 & 1)}
            for row in rows
        ],
    }  # fmt: skip


def _charts(device: Any) -> list[dict[str, Any]]:
    where = block_map.mapped(device.ssd)
    return [charts.facts(_map(device)), charts.picture(device, where)]


SCHEME = Scheme(
    name="remapssd",
    title="Remap-SSD",
    paper="Zhou et al., Remap-SSD: Safely and Efficiently Exploiting SSD Address Remapping to Eliminate Duplicate "
    "Writes, FAST 2021",
    about="several LPAs may be at one page; entries in NVRAM, by superblock, say which beside the one in its OOB",
    replaces=("mapping", "validity", "placement", "cleaning"),
    scheme_oob=0,
    saved_bytes=lambda geometry: 4 * geometry.lpas,
    sections=lambda geometry, options, dram: {"mapping": 4 * geometry.lpas, **ReferenceCounts.section_bytes(geometry)},
    build=_build,
    options=(
        STRIPE,
        Option("segment", 1024, "bytes of a segment of NVRAM, of which a superblock takes one at a time", low=64,
               high=1 << 16, unit=BYTES, fixed=True),
        Option("nvram", 0, f"bytes of NVRAM for entries; 0: {RMM_BYTES} for each logical page, 3 GiB at most",
               high=1 << 40, unit=BYTES, fixed=True),
        Option("atomic", "remap", "what a crash leaves whole: each LPA that is remapped, or a command of up to 256 "
               "pages, with entries of 24 bytes instead of 16; one that cannot be whole is refused",
               choices=("remap", "command"), fixed=True),
        Option("rival", "remap", "what the paper compares with: flog, a log in flash, and nlog, one in NVRAM, which "
               "cleaning reads from end to end; opt, entries without limit that are found at once; none: nothing is "
               "remapped", choices=("remap", "none", "flog", "nlog", "opt"), fixed=True, before="remap"),
        Option("lookups", "aside", "what the dies do while cleaning looks entries up: go on; or, with alone, begin "
               "nothing", choices=("aside", "alone")),
        Option("watermark", 95, "per cent of the entries that may be valid; beyond, pages are written", low=1,
               high=100),
        Option("dedup", "off", "whether a page that is written is compared with those in flash by its fingerprint, "
               "and remapped to the like of it; the write buffer is not used then", choices=("off", "on")),
        Option("verify", "on", "whether the page of the same fingerprint is read and compared first",
               choices=("on", "off")),
        Option("hash_us", 32, "virtual time that a page's fingerprint takes", high=1 << 20),
        Option("references", 15, "LPAs that may be at one page", low=1, high=15),
    ),
    nvram=_nvram,
    describe_translation=_describe_logged,
    views={"map": _map, "references": _references, "rmm": lambda device: device.ssd.mapping.rmm.groups_of()},
    numbered={"segments": ("superblock", _segments), "sharers": ("ppa", _sharers)},
    about_views={
        "map": "the map in figures",
        "references": "how many pages have how many references",
        "rmm": "the remapping metadata in NVRAM",
        "segments": "the entries of a superblock",
        "sharers": "the LPAs that share a page",
    },
    charts=_charts,
    events={
        "pages remapped": lambda ssd: ssd.mapping.done,
        "remaps refused, counter full": lambda ssd: ssd.mapping.refused_count,
        "remaps refused, NVRAM full": lambda ssd: ssd.mapping.refused_full,
        "groups compacted": lambda ssd: ssd.mapping.rmm.compacted_n,
        "entries carried": lambda ssd: ssd.mapping.rmm.carried_n,
        "pages found in flash": lambda ssd: ssd.mapping.dedup.found if ssd.mapping.dedup else 0,
        "pages shed": lambda ssd: ssd.cleaning.entries.shed_n,
    },
    tight={"segment": (96, 128, 128), "nvram": (2_048, 3_072), "references": (2, 3, 15), "watermark": (50, 95),
           "atomic": ("remap", "command"), "dedup": ("on", "off")},
    varied={"watermark": (60, 95), "references": (3, 15), "dedup": ("on", "off")},
    chips=("tiny-112",),  # several hundred pages, on which programs are long
    year=2021,
    remaps=True,
    by_superblock=True,
    manual="docs/ftl/remapssd.md",
)  # fmt: skip
