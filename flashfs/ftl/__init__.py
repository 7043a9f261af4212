"""The registry of schemes: every folder beside this file that defines SCHEME is one. No other module lists names.

A family that shares a folder has a tuple of schemes there. ``flashfs new-ftl`` makes a folder. Schemes of other
packages come in two ways: as an entry point of the group ``flashfs.ftl``, under a name of its own, or as
``package.module:Class`` on the command line. Either names a Python class, or a Scheme of compiled parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from traceback import extract_tb
from typing import Any

from flashfs.errors import MISTAKES, UsageError
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.text import bytes_of, meant, shown
from nandimg import Feature

BYTES = "bytes"  #: unit of an option that takes the suffixes of sizes
GROUP = "flashfs.ftl"  #: the group of entry points
CI_CUTS = 2_560  #: power cuts for a scheme that sets no ``ci_cuts``; `make campaign` makes a million
MOST_VALUES = 16  #: an option with at most this many values has all of them as edges
MOST_EDGE = 1024  #: the largest ``high`` that counts as an edge
BUFFER_BYTES = 256 * 1024  #: the write buffer, unless the scheme or an option sets another size


@dataclass(frozen=True, slots=True)
class Option:
    """One setting that ``--opt name=value`` chooses. ``fixed`` options are part of the format: they are stored when a
    scheme is bound and cannot be changed later. ``before`` is the value of a fixed option on images that were bound
    before the option existed. An option whose ``unit`` is BYTES takes suffixes: 100k, 2M, 1G."""

    name: str
    default: int | str
    help: str
    low: int = 0
    high: int = 2**32
    choices: tuple[str, ...] = ()
    fixed: bool = False
    before: int | str | None = None
    unit: str = ""

    def edges(self) -> tuple[int | str, ...]:
        """The values worth testing: all choices or, of a number, the least, the next, the default and the highest,
        unless that is beyond MOST_EDGE, which no small chip has room for."""
        if self.choices:
            return self.choices
        if self.high <= MOST_VALUES:
            return tuple(range(self.low, self.high + 1))
        most = (self.high,) if self.high <= MOST_EDGE else ()
        return tuple(dict.fromkeys((self.low, self.low + 1, int(self.default), *most)))

    def parse(self, text: Any) -> int | str:
        """The value that ``text`` names (of any type); UsageError says which values are allowed."""
        if self.choices:
            if str(text) not in self.choices:
                given = f"{self.name}={text!s:.40}{meant(text, self.choices)}"
                raise UsageError(f"option {given}: use {' or '.join(self.choices)}")
            return str(text)
        if self.unit == BYTES and isinstance(text, str):
            return self._bytes(text)
        try:  # a header's JSON may hold anything; only whole numbers and their texts are valid
            value = int(text) if isinstance(text, int | str) and not isinstance(text, bool) else self.low - 1
        except ValueError:
            value = self.low - 1
        if not self.low <= value <= self.high:
            raise UsageError(f"option {self.name}={text!s:.40}: use a whole number from {self.low} to {self.high}")
        return value

    def _bytes(self, text: str) -> int:
        value = bytes_of(text)
        if value is None or value.denominator != 1 or not self.low <= value <= self.high:
            raise UsageError(f"option {self.name}={text:.40}: use a number of bytes from {self.low} to "
                             f"{shown(self.high)}, as 4096, 100k or 2M")  # fmt: skip
        return int(value)


#: options of the engine: every scheme has them
ENGINE_OPTIONS = (
    Option("buffer", -1, "pages of the write buffer; -1: what the scheme wants (most: 256 KiB), less on a tiny chip",
           low=-1, high=1 << 20),
    Option("wear_spread", 0, "erases by which the most worn block may lead the least worn, from 2 on; 0: an eighth of "
           "the chip's endurance", high=1 << 20),
    Option("wear", "exact", "how wear levelling finds its blocks: it knows erases and age of each; or it scans their "
           "spare areas, and keeps a few figures of all (GeckoFTL, appendix D)", choices=("exact", "scan")),
    Option("wear_reads", 1, "spare areas that wear=scan reads for each page programmed", low=1, high=1 << 10),
    Option("gc_reserve", 0, "free blocks for cleaning; 0: two, one on a chip of fewer than 64 blocks, more if pages "
           "are paired; on a disk one in 128: rarer syncs", high=1 << 20),
    Option("checkpoint_every", 0, "pages programmed between checkpoints; 0: 256 times its own, 2^27 at most",
           high=1 << 40),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scheme:
    """A published FTL: which of the four parts it replaces, and how to build it.

    ``saved_bytes(geometry)`` is the most that its mapping's sections take in a checkpoint, in bytes. If that depends on
    more, or if its validity is not the engine's bitmap, ``sections(geometry, options, dram)`` gives {section: most
    bytes} of all its parts instead (``dram`` is the budget or None). ``build(ssd, options)`` returns (mapping,
    validity, placement, cleaning). ``derive(ssd, options)`` returns options that follow from the device and are stored,
    such as a table's size; ``check_new(ssd, options)`` raises BindError for options that no new image may have, though
    existing images that have them are mounted. ``scheme_oob`` is how many bytes of OOB it stamps on a page with its
    default options; if that depends on them, ``oob_for(options)`` returns it. The write buffer holds ``buffer_bytes``
    unless the option ``buffer`` sets it, and is emptied in the order of arrival or, with ``buffer_in_order``, of LPAs.

    ``features`` are what its images have and older programs do not know, by names "scheme.what": they go into the
    header when it is bound or upgraded. ``nvram(geometry, options, dram)`` are the regions of NVRAM that it uses,
    {name: bytes}, given that budget of DRAM or None; they are laid out when it is bound, and found later by
    ``nand.region(name)``. What is stored there survives a power cut and the process, but not always the host: no
    durable byte of it may be overwritten or freed before a sync has made its replacement durable.

    For ``dump``: ``describe_oob(bytes)`` decodes what the scheme stamped on a page, ``describe_translation(number,
    bytes)`` one of its translation pages, ``describe_validity(device, number, bytes)`` a page of its validity store.
    ``views`` are its own tables by name, each a function of the open device that returns plain dicts and lists;
    ``numbered`` are functions of the device and a number (None: the one with most to show), each with the name of what
    is numbered; ``about_views`` has a line for the help on each of both. ``charts(device)`` returns what the HTML page
    draws of it, a dict each; flashfs.ftl.charts makes them. ``origin`` names the package that provides it.

    ``events`` are the rare cases of its structures, where errors hide most easily: how often each occurred since the
    device was opened, as a function of its Ssd. A campaign of power cuts reports those that it never met.
    ``damage_events`` happen only where a page cannot be read: without such damage they are a failure. ``tight`` are
    option values that give its tables least room, for such a campaign to choose from; ``varied`` those that may change
    from mount to mount, for a campaign of kills. ``chips`` are presets on which cuts meet more of its structures, in
    addition to those that every scheme is cut on.

    ``year`` is its paper's: schemes are listed in that order. ``manual`` is its page, relative to the project's root.
    ``ci_cuts`` is how many power cuts of tier sweep `make test-all` runs on it.
    """

    name: str
    title: str
    paper: str
    about: str
    replaces: tuple[str, ...]
    scheme_oob: int
    saved_bytes: Callable[[Any], int]
    build: Callable[[Any, dict[str, Any]], tuple[Any, Any, Any, Any]]
    sections: Callable[[Any, dict[str, Any], int | None], dict[str, int]] | None = None
    options: tuple[Option, ...] = ()
    oob_for: Callable[[dict[str, Any]], int] | None = None
    buffer_bytes: int = BUFFER_BYTES
    buffer_in_order: bool = False
    derive: Callable[[Any, dict[str, Any]], dict[str, Any]] = field(default=lambda ssd, options: {})
    check_new: Callable[[Any, dict[str, Any]], None] = field(default=lambda ssd, options: None)
    describe_oob: Callable[[bytes], dict[str, Any]] = field(default=lambda raw: {})
    describe_translation: Callable[[int, bytes], dict[str, Any]] = field(default=lambda number, raw: {})
    describe_validity: Callable[[Any, int, bytes], dict[str, Any]] = field(default=lambda device, number, raw: {})
    views: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    numbered: Mapping[str, tuple[str, Callable[[Any, int | None], Any]]] = field(default_factory=dict)
    about_views: Mapping[str, str] = field(default_factory=dict)
    charts: Callable[[Any], list[dict[str, Any]]] = field(default=lambda device: [])
    events: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    damage_events: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    tight: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    varied: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    chips: tuple[str, ...] = ()
    year: int = 0
    manual: str = ""
    ci_cuts: int = CI_CUTS
    validity_in_flash: bool = False  #: validity takes blocks of its own
    validity_late: bool = False  #: and may count a superseded page as live until its block is cleaned
    merges: bool = False  #: data blocks are mapped as a whole, and cleaning merges log blocks into them
    hashed: bool = False  #: a hash of the LPA chooses the block
    remaps: bool = False  #: an LPA can be pointed at another's page, and remaps copy nothing
    by_superblock: bool = False  #: cleaning may open a block on each die at once, so the reserve must cover them
    features: tuple[Feature, ...] = ()
    nvram: Callable[[Any, dict[str, Any], int | None], dict[str, int]] = field(
        default=lambda geometry, options, dram: {}
    )
    origin: str = "flashfs"
    interpreted: bool = False  # its requests run Python code

    def checkpoint_sections(self, geometry: Any, options: dict[str, Any], dram: int | None = None) -> dict[str, int]:
        """{section: most bytes} of what its parts save in a checkpoint. The engine adds the block pool."""
        if self.sections is not None:
            return self.sections(geometry, options, dram)
        return {"mapping": self.saved_bytes(geometry), **PageBitmap.section_bytes(geometry)}

    def oob_with(self, options: dict[str, Any]) -> int:
        """Bytes of OOB that it stamps on a page, with those options."""
        return self.oob_for(options) if self.oob_for else self.scheme_oob

    def all_options(self) -> tuple[Option, ...]:
        return self.options + ENGINE_OPTIONS

    def resolve(self, given: dict[str, Any]) -> dict[str, Any]:
        """Defaults, overlaid with what was given; UsageError for an option that does not exist."""
        known = {option.name: option for option in self.all_options()}
        for name in given:
            if name not in known:
                raise UsageError(f"option {name}{meant(name, known)}: {self.name} has {', '.join(sorted(known))}")
        return {name: option.parse(given.get(name, option.default)) for name, option in known.items()}


SCHEMES: dict[str, Scheme] = {}
ROOMS: dict[str, str] = {}  #: the folder of each scheme
BROKEN: dict[str, str] = {}  #: folders whose scheme cannot be imported, and why


def _discover() -> None:
    """Fill SCHEMES and ROOMS. A folder that cannot be imported is noted in BROKEN and does not affect other schemes; a
    test asserts that there is none."""
    found: list[tuple[Scheme, str]] = []
    for room in (module.name for module in iter_modules(__path__) if module.ispkg):
        try:
            schemes = getattr(import_module(f"{__name__}.{room}"), "SCHEME", ())
        except MISTAKES as error:
            BROKEN[room] = f"flashfs/ftl/{room} cannot be imported: {_where(error, room)}"
            continue
        found += [(scheme, room) for scheme in (schemes if isinstance(schemes, tuple) else (schemes,))]
    for scheme, room in sorted(found, key=lambda pair: (pair[0].year, pair[0].name)):
        if scheme.name in SCHEMES:
            other = ROOMS[scheme.name]
            BROKEN[room] = f"flashfs/ftl/{room}: flashfs/ftl/{other} has a scheme called {scheme.name} too"
            continue
        SCHEMES[scheme.name], ROOMS[scheme.name] = scheme, room


def _where(error: BaseException, room: str) -> str:
    """The error in one line, with the line of that folder which raised it; says so if the folder is not compiled."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {error.msg}"
    frames = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename).parent.name == room]
    line = f"{frames[-1].filename}, line {frames[-1].lineno}: " if frames else ""
    unbuilt = isinstance(error, ImportError) and str(error.name).startswith(f"{__name__}.{room}")
    return f"{line}{type(error).__name__}: {text}" + ("; `make setup` compiles what is there" if unbuilt else "")


_discover()


@cache
def installed() -> dict[str, EntryPoint]:
    """The entry points of other packages by name; nothing is imported. The names of SCHEMES are left out."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in SCHEMES}


def is_registered(name: str) -> bool:
    """Whether the name is flashfs's own or of an installed package: such a name is safe to use even from an image."""
    return name in SCHEMES or name in BROKEN or name in installed()


def listed(text: str) -> list[str]:
    """The names of a comma-separated list; ``all`` stands for every scheme of flashfs. UsageError for an empty list or
    a name that occurs twice."""
    some = (SCHEMES if name.lower() == "all" else (name,) for name in text.split(",") if name)
    names = [name for part in some for name in part]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--ftl {text}: use names with commas between them, each once, or all")
    return names


def scheme(name: str) -> Scheme:
    """The scheme of that name: flashfs's own, an installed one, or the class that ``package.module:Class`` names.
    UsageError says what is wrong with the name, or with what it names. Imports the class: if an image brings a name
    that is not registered, the caller must ask the user first."""
    if name in SCHEMES:
        return SCHEMES[name]
    if name in BROKEN:
        raise UsageError(f"FTL {name}: {BROKEN[name]}")
    if name in installed():
        return _installed(installed()[name])
    if ":" in name:
        from flashfs.ftl import python  # here: it needs this module

        return python.scheme_of(name, python.load_class(name))
    names = [*SCHEMES, *installed()]
    raise UsageError(
        f"no FTL is called {name!r}{meant(name, names)}; there are {', '.join(names)}, and package.module:Class for "
        "one of your own" + "".join(f"; {why}" for why in BROKEN.values())
    )


def _installed(point: EntryPoint) -> Scheme:
    """The scheme of an entry point. UsageError names the entry point and its package if it is broken."""
    from flashfs.ftl import python

    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        found = point.load()
    except MISTAKES as error:
        text = " ".join(str(error).split())
        said = f"{type(error).__name__}: {text}"
        raise UsageError(f"FTL {point.name}: {package} ({point.value}) raised {said}") from error
    if isinstance(found, Scheme):
        return replace(found, name=point.name, origin=package)
    if isinstance(found, type):
        return python.scheme_of(point.name, found, package)
    raise UsageError(f"FTL {point.name}: {package} ({point.value}) is a {type(found).__name__}: it must be a class")
