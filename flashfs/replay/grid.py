"""Points: the replays to run, from names and values as the flags of ``flashfs replay`` take them.

``expand`` makes a point of each combination of the values given: ``{"ftl": ["pagemap", "slimftl"], "dram": ["4M",
"8M"]}`` makes four. A sweep's TOML and the arguments of ``flashfs.replay()`` are such tables.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flashfs
from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import equal_settings
from flashfs.replay.workloads import is_workload
from flashfs.replay.workloads._grammar import Unreadable, count, size, word
from flashfs.sizing.defaults import DEFAULT_FTL
from flashfs.text import meant

if TYPE_CHECKING:
    from flashfs.replay.play import Setup
    from flashfs.replay.request_source import Source
    from flashfs.replay.traces import Options
    from nandimg import Geometry

KEY_DIGITS = 16  #: of a SHA-256: the name of a point's file
#: folders under flashfs/ whose code does not affect the result of a replay
BYSTANDERS = (
    "api", "check", "cli", "comparison", "crash", "formulas", "fuse", "inspect", "nbd", "replay/plots", "reproduce",
    "scaffold", "watch",
)  # fmt: skip
CODE = (".py", ".pyx", ".pxd", ".h")


@dataclass(frozen=True, slots=True)
class Axis:
    """A name that may be given, with one value or a list of them. ``what`` is the part it belongs to: the setup itself,
    the chip's geometry, the options of traces, or workloads."""

    name: str
    what: str
    parse: Callable[[Any], Any]


def _whole(low: int, high: int = 1 << 62) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        text = str(value)
        if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise Unreadable(f"a whole number from {low} on")
        return int(text)

    return parse


def _bytes(value: Any) -> int:
    if isinstance(value, bool):
        raise Unreadable("a size above 0, as 4k or 1M")
    return size(str(value))


def _requests(value: Any) -> int:
    return count(str(value))


def _word(*choices: str) -> Callable[[Any], str]:
    parse = word(*choices)
    return lambda value: parse(str(value))


def _signed_bytes(value: Any) -> int:
    text = str(value)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits == "0":
        return 0
    return size(digits) * (-1 if text.startswith("-") else 1)


def _decimal(value: Any) -> float:
    try:
        found = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        found = float("nan")
    if not 0 < found < float("inf"):
        raise Unreadable("a number above 0")
    return found


def speedup(value: Any) -> dict[str, Any]:
    """The fields of traces.Options for a speed-up: a factor, or the target utilisation."""
    text = str(value)
    if text == "auto":
        return {"utilisation": UTILISATION}
    if text.startswith("u="):
        return {"utilisation": _decimal(text[2:])}
    return {"speedup": _decimal(value)}


def _phases(value: Any) -> tuple[str, ...]:
    """One value: a phase, or a list of phases in a row."""
    if value == "none":
        return ()
    return tuple(_text(one) for one in (value if isinstance(value, list | tuple) else [value]))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise Unreadable("a text")
    return value


def _ftl(value: Any) -> str:
    from flashfs.ftl import class_names

    if not isinstance(value, type | str) or not value:
        raise Unreadable("the name of an FTL, or a class")
    return class_names.name_of(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unreadable("true or false")
    return value


def _or_none(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A parser that accepts ``none`` too: TOML has no null, and a list may need "no limit" as one of its values."""
    return lambda value: None if value is None or value == "none" else parse(value)


AXES = {
    axis.name: axis
    for axis in (
        Axis("source", "setup", _text),
        Axis("ftl", "setup", _ftl),
        Axis("seed", "workload", _whole(0)),
        Axis("image", "setup", lambda value: Path(_text(value))),
        Axis("backend", "setup", _word("meta", "file")),
        Axis("dram", "setup", _or_none(_bytes)),
        Axis("plp", "setup", _flag),
        Axis("qd", "setup", _or_none(_whole(0, 65536))),
        Axis("precondition", "setup", _text),
        Axis("before", "setup", _phases),
        Axis("warm", "setup", _phases),
        Axis("prepared", "setup", lambda value: Path(_text(value))),
        Axis("format", "setup", _text),
        Axis("columns", "setup", _text),
        Axis("preset", "geometry", _text),
        Axis("size", "geometry", _bytes),
        Axis("page_size", "geometry", _bytes),
        Axis("pages_per_block", "geometry", _whole(1)),
        Axis("channels", "geometry", _whole(1)),
        Axis("dies", "geometry", _whole(1)),
        Axis("oob", "geometry", _whole(1)),
        Axis("op", "geometry", _decimal),
        Axis("shift", "trace", _signed_bytes),
        Axis("fit", "trace", _text),
        Axis("pack", "trace", _bytes),
        Axis("speedup", "trace", speedup),
        Axis("loops", "trace", _whole(1)),
        Axis("first", "trace", _or_none(_requests)),
        Axis("unit", "trace", _or_none(_text)),
        Axis("event", "trace", _text),
        Axis("sort", "trace", _flag),
    )
}
GEOMETRY_FIELDS = {"page_size": "page_bytes", "oob": "oob_bytes"}  #: of Geometry, where the flag has another name
TRACE_FIELDS = {"shift": "shift_bytes", "pack": "pack_bytes"}  #: of traces.Options
OPTIONS = "opt"
UTILISATION = 0.7  #: that `speedup = "auto"` brings a trace to


Tell = Callable[[str], None]  #: gets one line about each choice that was made because no option gave it


def expand(given: Mapping[str, Any], *, folder: Path | None = None, tell: Tell = lambda line: None) -> list[Setup]:
    """A Setup of each combination of what ``given`` lists: sources outermost, options of FTLs innermost.

    ``opt`` is a table of options for every FTL that knows them, and of tables of options by FTL. Paths are relative to
    ``folder``. UsageError names the invalid key; errors of sources and FTLs are raised here too, not at replay.
    """
    named = _named(given)
    options = named.pop(OPTIONS, {})
    if not isinstance(options, Mapping):
        raise UsageError(f"{OPTIONS} = {options!r:.60}: use a table of NAME = VALUE")
    options = {_ftl(name) if isinstance(name, type) else name: value for name, value in options.items()}
    values = {name: _values(AXES[name], value) for name, value in named.items()}
    if not values.get("source"):
        raise UsageError("source: use a trace or a workload, or a list of them")
    values["source"] = [_found(one, folder) for one in values["source"]]
    for name in ("image", "prepared"):
        if name in values and folder is not None:
            values[name] = [folder / path for path in values[name]]
    for name in ("before", "warm"):
        if name in values:
            values[name] = [tuple(_found(one, folder) for one in some) for some in values[name]]
    if "image" in values:
        values = _on_images(values)
    values.setdefault("ftl", [DEFAULT_FTL])
    _check_options(options, values["ftl"])
    names = sorted(values, key=list(AXES).index)
    names.append(names.pop(names.index("ftl")))
    out = []
    rooms, sources = Rooms(tell), Sources()
    for combination in itertools.product(*(values[name] for name in names)):
        one = dict(zip(names, combination, strict=True))
        for chosen in _option_sets(options, one["ftl"]):
            out.append(_on_ground(_setup(one, chosen, rooms, sources), values["ftl"], options))
    for line in dict.fromkeys(line for setup in out for line in equal_settings.differences(setup)):
        tell(line)
    return _without_twins(out)


def _on_ground(setup: Setup, ftls: list[str], options: Mapping[str, Any]) -> Setup:
    """The setup on the equal ground of all ``ftls``; options that ``options`` give for all of them count as equal."""
    own = options.get(setup.ftl, {})
    shared = {name: value for name, value in setup.options.items() if name not in own}
    all_of_them = [setup if ftl == setup.ftl else replace(setup, ftl=ftl, options=_known(shared, ftl)) for ftl in ftls]
    return equal_settings.level(all_of_them, shared)[ftls.index(setup.ftl)]


def _known(options: Mapping[str, Any], ftl: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _option_names(ftl)}


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with underscores in its names. UsageError for a name that is unknown or given twice."""
    out: dict[str, Any] = {}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        if name not in AXES and name != OPTIONS:
            keys = (*AXES, OPTIONS)
            raise UsageError(f"{key}{meant(key, keys)}: no such key; use {', '.join(keys)}")
        if name in out:
            raise UsageError(f"{key}: it is there twice")
        out[name] = value
    return out


def _values(axis: Axis, value: Any) -> list[Any]:
    """The parsed values of an axis. UsageError if there are none, or one is invalid or given twice."""
    out = []
    listed = value if isinstance(value, list | tuple) else [value]
    if not listed:
        raise UsageError(f"{axis.name} = []: use a value, or a list of some")
    for one in listed:
        try:
            found = axis.parse(one)
        except ValueError as error:
            raise UsageError(f"{axis.name} = {one!r:.60}: use {error}") from None
        if found in out:
            raise UsageError(f"{axis.name} = {one!r:.60}: it is there twice")
        out.append(found)
    return out


def _found(source: str, folder: Path | None) -> str:
    """The path of a trace, taken from ``folder``; a workload unchanged."""
    if folder is None or folder == Path() or Path(source).is_absolute():
        return source
    path = folder / source
    return source if is_workload(source) and not path.exists() else str(path)


def _on_images(values: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """``values`` with the images' FTL. UsageError for axes that an image fixes: its geometry and its FTL.

    An image's header alone never makes a module be imported: the FTL must be registered or named as ``ftl``.
    """
    import nandimg
    from flashfs.ftl import is_registered

    for name in ("backend", "prepared"):
        if name in values:
            raise UsageError(f"{name}: an image has its own; leave it out, or the image")
    for name in values:
        if AXES[name].what == "geometry":
            raise UsageError(f"{name}: an image is a whole chip; leave it out, or the image")
    ftls = [nandimg.inspect(path).ftl or DEFAULT_FTL for path in values["image"]]
    if len(set(ftls)) > 1:
        raise UsageError(f"image: they have {', '.join(dict.fromkeys(ftls))}: use one FTL at a time")
    if values.get("ftl", ftls[:1]) != ftls[:1]:
        raise UsageError(f"ftl: an image has its own, {ftls[0]} here; leave it out, or the image")
    if "ftl" not in values and ":" in ftls[0] and not is_registered(ftls[0]):
        raise UsageError(f"image: its header names {ftls[0]}, which is not registered: name it as ftl to import it")
    return {**values, "ftl": ftls[:1]}


def _check_options(options: Mapping[str, Any], ftls: list[str]) -> None:
    """UsageError for an option that none of the FTLs knows, or a table for an FTL that is not among them."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            if name not in ftls:
                raise UsageError(f"{OPTIONS}.{name}: options of an FTL that is not in ftl: use {', '.join(ftls)}")
        elif not any(name in _option_names(ftl) for ftl in ftls):
            known = sorted(set().union(*map(_option_names, ftls)))
            raise UsageError(f"{OPTIONS}.{name}{meant(name, known)}: use {', '.join(known)}")


def _option_names(ftl: str) -> set[str]:
    from flashfs.ftl import scheme

    return {option.name for option in scheme(ftl).all_options()}


def _option_sets(options: Mapping[str, Any], ftl: str) -> Iterator[dict[str, Any]]:
    """Each combination of the options for this FTL."""
    known = _option_names(ftl)
    mine = {name: value for name, value in options.items() if not isinstance(value, Mapping) and name in known}
    mine |= options.get(ftl, {})
    lists = {name: value if isinstance(value, list | tuple) else [value] for name, value in mine.items()}
    for name, values in lists.items():
        if not values:
            raise UsageError(f"{OPTIONS}.{name} = []: use a value, or a list of some")
    for combination in itertools.product(*lists.values()):
        yield dict(zip(lists, combination, strict=True))


class Rooms:
    """Devices for traces that were given no device: each trace is scanned, and its device reported, once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._found: dict[tuple[str, Options, str | None], tuple[int, Options]] = {}

    def of(
        self, source: str, options: Options, format: str | None, shape: Mapping[str, Any]
    ) -> tuple[Geometry, Options]:
        from flashfs.replay.open_source import device_for

        asked = (source, options, format)
        if asked not in self._found:
            host_bytes, fitted, why = device_for(*asked)
            self._tell(why)
            self._found[asked] = (host_bytes, fitted)
        host_bytes, fitted = self._found[asked]
        return device({**shape, "size": host_bytes}), fitted


def _setup(one: Mapping[str, Any], options: dict[str, Any], rooms: Rooms, sources: Sources) -> Setup:
    """The Setup of one point, checked as far as is possible without a device."""
    from flashfs.ftl import scheme
    from flashfs.replay import phases
    from flashfs.replay.play import Setup
    from flashfs.replay.precondition import Precondition
    from nandimg import inspect

    def of(what: str) -> dict[str, Any]:
        return {name: value for name, value in one.items() if AXES[name].what == what}

    scheme(one["ftl"]).resolve(options)
    Precondition.parse(one.get("precondition"))
    geometry = inspect(one["image"]).geometry if "image" in one else device(of("geometry"))
    trace = None
    kept = of("setup")
    if not is_workload(one["source"]) or Path(one["source"]).exists():
        trace = trace_options(of("trace"))
        kept = _with_columns(kept)
        shape = of("geometry")
        free = not {"preset", "size"} & shape.keys() and "image" not in one and "fit" not in one
        if free and Path(one["source"]).exists():
            geometry, trace = rooms.of(one["source"], trace, kept.get("format"), shape)
    else:  # a workload is described by its own keys alone
        kept.pop("format", None)
        kept.pop("columns", None)
        if "seed" in one:
            kept["source"] += f"{',' if ':' in one['source'] else ':'}seed={one['seed']}"
    setup = Setup(**kept, options=options, geometry=geometry, trace=trace)
    sources.of(setup)
    for some in (setup.before, setup.warm):
        phases.sources(some, geometry.logical_bytes, geometry.page_bytes, trace)
    return setup


def _with_columns(kept: dict[str, Any]) -> dict[str, Any]:
    """``kept`` with ``columns``, if given, turned into the format that it names."""
    from flashfs.replay.traces import named_by

    columns = kept.pop("columns", None)
    return {**kept, "format": named_by(kept.get("format"), columns)} if columns is not None else kept


class Sources:
    """The sources of setups, each opened once: hundreds of points share a few sources."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Source] = {}

    def of(self, setup: Setup) -> Source:
        from flashfs.replay.open_source import open_source

        device_bytes, page_bytes = setup.geometry.logical_bytes, setup.geometry.page_bytes
        asked = (setup.source, device_bytes, page_bytes, setup.trace, setup.format)
        if asked not in self._found:
            self._found[asked] = open_source(
                setup.source, device_bytes, page_bytes=page_bytes, options=setup.trace, format=setup.format
            )
        return self._found[asked]


def trace_options(given: Mapping[str, Any]) -> Options:
    """How a trace is read, from parsed values of the trace axes."""
    from flashfs.replay.traces import Options

    fields = {TRACE_FIELDS.get(name, name): value for name, value in given.items()}
    return Options(**fields.pop("speedup", {}), **fields).check()


def read(given: Mapping[str, Any]) -> dict[str, Any]:
    """One value for each of AXES, as the flags have them, parsed; None is left out. UsageError names the key."""
    return {name: _values(AXES[name], [value])[0] for name, value in given.items() if value is not None}


def device(given: Mapping[str, Any]) -> Geometry:
    """The chip that the flags of ``flashfs create`` describe."""
    from flashfs.fit import sized
    from flashfs.sizing.defaults import DEVICE_BYTES
    from nandimg.presets import PRESETS

    shape = {GEOMETRY_FIELDS.get(name, name): value for name, value in given.items()}
    preset = shape.pop("preset", None)
    if preset is None:
        size_bytes = shape.pop("size", DEVICE_BYTES)
        return sized(size_bytes, shape)
    if preset not in PRESETS:
        raise UsageError(f"preset = {preset!r}{meant(preset, PRESETS)}: no such preset; see flashfs presets")
    if shape:
        raise UsageError(f"preset = {preset!r}: it is a whole chip: leave {', '.join(sorted(given)[1:])} out")
    return PRESETS[preset].geometry


def _without_twins(setups: list[Setup]) -> list[Setup]:
    """The setups without duplicates: a list of trace options would make equal points of a workload, which has no such
    options."""
    return list({json.dumps(plain(setup), sort_keys=True): setup for setup in setups}.values())


def plain(setup: Setup) -> dict[str, Any]:
    """A setup as plain JSON values, without ``prepared``: where prepared images lie does not affect results."""
    made = asdict(replace(setup, prepared=None))
    return json.loads(json.dumps({name: value for name, value in made.items() if name != "prepared"}, default=str))


def uneven(setup: Setup) -> dict[str, Any]:
    """As ``plain``, without the options that every FTL of its comparison has alike."""
    made = plain(setup)
    even = made.pop("ground", None) or {}
    made["options"] = {name: value for name, value in made["options"].items() if even.get(name) != value}
    return made


def keys(setups: Sequence[Setup]) -> list[str]:
    """The names of points: hexadecimal digits of a hash of everything that affects their results. Of a trace that is
    its contents, not its path."""
    sources = Sources()
    return [_key(setup, sources.of(setup)) for setup in setups]


def _key(setup: Setup, source: Source) -> str:
    from flashfs.ftl import scheme
    from flashfs.replay import phases
    from flashfs.replay.precondition import Precondition

    made = plain(setup)
    if setup.trace is not None:
        made |= {"source": _content_hash(Path(setup.source)), "format": source.describe()["format"]}
    else:
        made["source"] = source.hash()
    if setup.image is not None:
        made["image"] = _content_hash(setup.image)
    made["options"] = scheme(setup.ftl).resolve(setup.options)
    made["precondition"] = Precondition.parse(setup.precondition).canonical()
    shape = setup.geometry
    for name, some in (("before", setup.before), ("warm", setup.warm)):
        made[name] = phases.said(phases.sources(some, shape.logical_bytes, shape.page_bytes, setup.trace))
    made |= {"code": code(), "ftl_code": _ftl_code(setup.ftl)}
    return hashlib.sha256(json.dumps(made, sort_keys=True, default=str).encode()).hexdigest()[:KEY_DIGITS]


def _content_hash(path: Path) -> str:
    """A hash of a trace or an image, which is read once, not once per point."""
    stat = path.stat()
    return _hash_of(path, stat.st_mtime_ns, stat.st_size)


@cache
def _hash_of(path: Path, changed_ns: int, size_bytes: int) -> str:
    from flashfs.replay.traces._content import Content

    return Content(path).sha256()


@cache
def code() -> str:
    """Identifies the program that replays: its version and, in a source tree, where the engine changes between
    versions, a hash of the sources."""
    root = Path(flashfs.__file__).parent
    if not (root / "engine/device/ssd.pyx").exists():  # an installed one: the version says all
        return flashfs.__version__
    digest = hashlib.sha256()
    for package in (root, root.parent / "nandimg"):
        for path in sorted(package.rglob("*")):
            inside = path.relative_to(root.parent)
            if path.suffix in CODE and not any(inside.is_relative_to(f"flashfs/{name}") for name in BYSTANDERS):
                digest.update(f"{inside}\0".encode())
                digest.update(path.read_bytes())
    return f"{flashfs.__version__}+{digest.hexdigest()[:KEY_DIGITS]}"


def _ftl_code(name: str) -> str | None:
    """A hash of the code of a user's own FTL, which may change between two sweeps; None for a built-in scheme."""
    from flashfs.ftl import SCHEMES, class_names, installed

    if name in SCHEMES:
        return None
    if name in class_names.CLASSES:
        return hashlib.sha256(class_names.code(name)).hexdigest()
    module = installed()[name].module if name in installed() else name.partition(":")[0]
    file = sys.modules[module].__file__  # imported when its scheme was resolved
    if file is None:
        raise FlashfsError(f"FTL {name}: {module} is in no file")
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
