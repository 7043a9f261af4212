"""Plays one source on one device in virtual time; the result is one plain dict.

`flashfs replay`, `flashfs sweep` and the Python API all use ``run``. docs/replay.md lists the fields of the dict.
``config`` holds all that made it: the same config gives the same figures, to the bit, except ``wall_s`` and
``pages_per_s``.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import nandimg
from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.errors import UsageError
from flashfs.ftl import class_names, listed, scheme
from flashfs.replay import equal_settings, phases
from flashfs.replay._player import Histogram, Player
from flashfs.replay.open_source import open_source
from flashfs.replay.precondition import Precondition
from flashfs.replay.request_source import Batch, Source
from flashfs.replay.traces import Options
from flashfs.sizing.defaults import DEFAULT_FTL
from flashfs.text import meant
from nandimg import Geometry
from nandimg.image import at_rest

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "p9999": 0.9999}
SAMPLES = 400  #: of the series at most; beyond that every second one is dropped
FIRST_STEP = 1024  #: requests between samples, at first
SERIES = (
    "virtual_s", "host_write", "host_read", "program", "gc_program", "erase", "free_blocks", "cache_hits",
    "cache_lookups", "host_remap",
)  # fmt: skip
NOTHING: dict[str, Any] = {"precondition": None, "before": []}  #: what was done on a device that was not prepared
REHEARSALS = 2  #: to find a speed-up: the second corrects for work that goes on after the last arrival
MAPS = frozenset({"map", "meta"})  #: streams of blocks that hold no host data
DEPTH = 1  #: of the closed loop, if neither the setup nor the source gives one

Progress = Callable[[int, int | None], None]  #: (requests done, requests in all, if that is known)


@dataclass(frozen=True)
class Setup:
    """What to play, and on which device. ``qd`` None: the source's own depth, or its times if it has any; 0: its times.

    ``image`` plays on a copy of an image instead of a chip in memory; geometry, backend and FTL are then the image's.
    An FTL that is not registered is imported only if ``ftl`` names it too, so never fill ``ftl`` from an image.
    ``ground`` holds the settings that a comparison gave all its FTLs alike (flashfs.replay.equal_settings); a warning
    names each FTL that differs. ``before`` are phases that are played after ``precondition`` and not counted;
    ``prepared`` is a folder that keeps such prepared images for reuse. ``warm`` are phases after the mount that
    follows, not counted either: they fill the caches in DRAM.
    """

    source: str
    ftl: str = DEFAULT_FTL
    options: dict[str, Any] = field(default_factory=dict)
    geometry: Geometry = field(default_factory=Geometry)
    backend: str = "meta"
    dram: int | None = None
    qd: int | None = None
    precondition: str | None = None
    before: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    trace: Options | None = None
    format: str | None = None
    image: Path | None = None
    prepared: Path | None = None
    plp: bool = False
    ground: dict[str, int] | None = None


def run(setup: Setup, progress: Progress | None = None) -> dict[str, Any]:
    """Play a setup and return its result. UsageError, BindError and TraceError if the setup cannot be played."""
    setup = at_utilisation(setup, progress)
    with ready(setup, progress) as on:
        player = Player(on.device.ssd, on.depth, on.device.quiet_at())
        found = _play(player, on.source, progress)
        made = _result(setup, on.device, on.source, player, found)
        made |= {**on.done, "warm": on.warmed}
        made["config"] = config_of(setup, on.device, on.source, on.depth, Precondition.parse(setup.precondition))
        return made


@dataclass
class Ready:
    """A prepared and warmed device with its counters at 0, and its source. ``depth`` is that of the closed loop, or 0
    for an open one; ``done`` and ``warmed`` say what was played before."""

    device: Device
    source: Source
    depth: int
    done: dict[str, Any]
    warmed: list[dict[str, Any]]


@contextmanager
def ready(setup: Setup, progress: Progress | None = None) -> Iterator[Ready]:
    """The Ready device of a setup whose speed-up is known (see ``at_utilisation``)."""
    with _device(setup, Precondition.parse(setup.precondition), progress) as (device, done):
        warmed = _warm(device, setup, progress)
        source = open_source(
            setup.source, device.size, page_bytes=device.page_bytes, options=setup.trace, format=setup.format
        )
        device.forget_counts()
        yield Ready(device, source, depth_of(setup, source), done, warmed)


def at_utilisation(setup: Setup, progress: Progress | None = None) -> Setup:
    """The setup with the speed-up that brings a trace to the utilisation that its options ask for, if they do.

    Rehearsals on the page map find it: the work of the requests for the busier of dies and channels hardly depends on
    their arrival times, so the measured busy time and duration give the factor. It is the same for every FTL on that
    chip, so FTLs are compared at the same arrivals; each result says how busy its own dies were.
    """
    options = setup.trace
    if options is None or options.utilisation is None or options.speedup != 1.0:  # it was found already
        return setup
    geometry = setup.geometry if setup.image is None else nandimg.inspect(setup.image).geometry
    rehearsal = replace(setup, ftl=DEFAULT_FTL, options={}, geometry=geometry, image=None, prepared=None)
    speedup = 1.0
    for _ in range(REHEARSALS):
        plain = replace(options, utilisation=None, speedup=speedup)
        last_ns, end_ns, busy_ns = _rehearsed(replace(rehearsal, trace=plain), options.utilisation, progress)
        # A trace may overload the chip at its own speed and end late: scale by its arrivals first, then by its end.
        speedup *= options.utilisation * (last_ns if speedup == 1.0 else end_ns) / busy_ns
    return replace(setup, trace=replace(options, speedup=speedup))


def _rehearsed(setup: Setup, wanted: float, progress: Progress | None) -> tuple[int, int, float]:
    """(when the last request arrived, when all had ended, how long the busier of dies and channels worked on average)
    for a trace at its own times, in ns."""
    with ExitStack() as stack:
        device, _ = stack.enter_context(_device(setup, Precondition.parse(setup.precondition), progress))
        source = open_source(
            setup.source, device.size, page_bytes=device.page_bytes, options=setup.trace, format=setup.format
        )
        if depth_of(setup, source):
            raise UsageError(
                f"--speedup u={wanted:g}: {source.name} is played in a closed loop, which has no times; use a trace "
                "with times, and no --qd"
            )
        _warm(device, setup, progress)
        device.forget_counts()
        base_ns, last_ns = device.quiet_at(), 0
        player = Player(device.ssd, 0, base_ns)
        for batch in source.batches():
            player.take(batch)
            last_ns = int(batch.time_ns[-1])
        busiest = max(sum(some) / len(some) for some in device.busy_ns().values() if some)
    if not last_ns or not busiest:
        raise UsageError(f"--speedup u={wanted:g}: {source.name} takes no time, or no work")
    return last_ns, player.end_ns - base_ns, busiest


def depth_of(setup: Setup, source: Source) -> int:
    """The depth of the closed loop; 0 for an open one."""
    if setup.qd is not None:
        if setup.qd == 0 and not source.timed:
            raise UsageError(f"--qd 0: {source.name} has no times of its own; use a depth from 1 on")
        return setup.qd
    if source.qd is not None:
        return source.qd
    return 0 if source.timed else DEPTH


# --- the device


@contextmanager
def _device(setup: Setup, wanted: Precondition, progress: Progress | None) -> Iterator[tuple[Device, dict[str, Any]]]:
    """(a private device, what was done on it before)."""
    asked = wanted.kind != "none" or setup.before
    if setup.image is not None:
        with _copied(setup.image) as path:
            done = dict(NOTHING)
            if asked:
                with _opened(path, setup, clean=True) as device:
                    done = _prepare(device, setup, wanted, progress)
            with _opened(path, setup) as device:
                yield device, done
    elif setup.prepared is not None and asked:
        kept = _kept(setup, wanted, progress)
        with _copied(kept) as path, _opened(path, setup) as device:
            yield device, json.loads(kept.with_suffix(".json").read_text())
    else:
        image = nandimg.memory_image(setup.geometry, setup.backend)
        device = Device.start(image, setup.ftl, setup.options, **_settings(setup))
        try:
            done = dict(NOTHING)
            if asked:
                done = _prepare(device, setup, wanted, progress)
                device.leave()
                device = Device.start(image, setup.ftl, setup.options, **_settings(setup))
            yield device, done
        finally:
            device.close(clean=False)


def _settings(setup: Setup) -> dict[str, Any]:
    """How every device of a replay is opened, in memory or not, so that results do not depend on where it lies."""
    return {"dram": setup.dram, "plp": setup.plp, "sync": "none"}


def _prepare(device: Device, setup: Setup, wanted: Precondition, progress: Progress | None) -> dict[str, Any]:
    found = phases.sources(setup.before, device.size, device.page_bytes, setup.trace)
    return phases.prepare(device, wanted, found, progress)


def _warm(device: Device, setup: Setup, progress: Progress | None) -> list[dict[str, Any]]:
    found = phases.sources(setup.warm, device.size, device.page_bytes, setup.trace)
    return phases.played(device, found, "--warm", progress)


@contextmanager
def _opened(path: Path, setup: Setup, clean: bool = False) -> Iterator[Device]:
    named = nandimg.inspect(path).ftl in ("", setup.ftl)
    device = Device.open(path, ftl=setup.ftl if named else None, options=setup.options, **_settings(setup))
    try:
        yield device
    except BaseException:
        device.close(clean=False)
        raise
    device.close(clean=clean)


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A temporary copy, so that a replay does not change the image."""
    with tempfile.TemporaryDirectory(prefix="flashfs-replay-") as folder:
        copy = Path(folder, "image")
        with at_rest(path):
            _copy(path, copy)
        yield copy


def _copy(source: Path, target: Path) -> None:
    """Copy a file. Holes stay holes, and a file system that can share blocks does."""
    with source.open("rb") as reader, target.open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        at = 0
        while at < size:
            try:
                at = os.lseek(reader.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                break
            end = os.lseek(reader.fileno(), at, os.SEEK_HOLE)
            os.lseek(writer.fileno(), at, os.SEEK_SET)
            while at < end:
                at += os.sendfile(writer.fileno(), reader.fileno(), at, min(end - at, 1 << 30))
        writer.truncate(size)


def _kept(setup: Setup, wanted: Precondition, progress: Progress | None) -> Path:
    """The prepared image of this setup in its folder; made now if it does not exist."""
    assert setup.prepared is not None
    options = scheme(setup.ftl).resolve(setup.options)
    geometry = setup.geometry
    before = phases.sources(setup.before, geometry.logical_bytes, geometry.page_bytes, setup.trace)
    said = {
        "version": version("flashfs"), "ftl": setup.ftl, "options": options, "geometry": geometry.as_dict(),
        "backend": setup.backend, "precondition": wanted.canonical(), "plp": setup.plp, "dram": setup.dram,
        "before": phases.said(before),
    }  # fmt: skip
    if setup.ftl in class_names.CLASSES:  # a changed class of the same name makes another image
        said["code"] = hashlib.sha256(class_names.code(setup.ftl)).hexdigest()
    name = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:24]
    path = setup.prepared / f"{setup.ftl}-{name}.nand"
    if path.exists() and path.with_suffix(".json").exists():
        return path
    setup.prepared.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=setup.prepared) as folder:
        made = Path(folder, "image")
        nandimg.create(made, setup.geometry, backend=setup.backend)
        with _opened(made, setup, clean=True) as device:
            done = _prepare(device, setup, wanted, progress)
        Path(folder, "said").write_text(json.dumps(done))
        made.replace(path)
        Path(folder, "said").replace(path.with_suffix(".json"))
    return path


# --- the requests


@dataclass
class Found:
    """What ``_play`` measures in addition to the player's counts."""

    requests: int = 0
    wall_s: float = 0.0
    samples: list[tuple[int, ...]] = field(default_factory=list)


def _play(player: Player, source: Source, progress: Progress | None) -> Found:
    """Play all requests; the next batch is read while one is played."""
    found = Found(samples=[player.sample()])
    step, since = FIRST_STEP, 0
    for batch in _ahead(source):
        at = 0
        while at < len(batch):
            part = batch.slice(at, min(len(batch), at + step - since))
            before = time.perf_counter()
            player.take(part)
            found.wall_s += time.perf_counter() - before
            at += len(part)
            since += len(part)
            if since == step:
                since = 0
                found.samples.append(player.sample())
                if len(found.samples) > SAMPLES:
                    del found.samples[1::2]
                    step *= 2
        found.requests += len(batch)
        if progress is not None:
            progress(found.requests, getattr(source, "ops", None))
    if since or len(found.samples) == 1:
        found.samples.append(player.sample())
    return found


def _ahead(source: Source) -> Iterator[Batch]:
    """The batches of a source; another thread makes the next one while the caller uses the current one."""
    batches = source.batches()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


# --- the result


def _result(setup: Setup, device: Device, source: Source, player: Player, found: Found) -> dict[str, Any]:
    stats = device.stats()
    requests = player.requests()
    virtual_s = (player.end_ns - player.base_ns) / 1e9
    answered = sum(requests.values())
    cache = device.ssd.cache
    histograms = player.histograms()
    return {
        "ftl": device.ftl,
        "source": source.name,
        "host": {**stats["host"], "flush": requests["flush"]},
        "requests": requests,
        "nand": stats["nand"],
        "scheme": stats["scheme"],
        "purpose": stats["purpose"],
        "waf": stats["waf"],
        "ground": equal_settings.stood_on(device, setup.dram),
        "map_bytes": sum(packed for packed, _ in device.ssd.mapping.tables().values()),
        "dram": stats["dram"],
        "dram_cuts": stats["dram_cuts"],
        "heap": stats["heap"],
        "allocated": stats["allocated"],
        "cache": {
            "slots": cache.slots,
            "hits": cache.hits,
            "misses": cache.misses,
            "hit_ratio": round(cache.hits / (cache.hits + cache.misses), 6) if cache.hits + cache.misses else None,
        },
        "latency_us": {name: _latency(one) for name, one in histograms.items()},
        "iops": round(answered / virtual_s, 3) if virtual_s else None,
        "virtual_s": virtual_s,
        "wall_s": round(found.wall_s, 6),
        "pages_per_s": round(player.pages / found.wall_s) if found.wall_s else None,
        "utilisation": _utilisation(device, virtual_s),
        **_data_blocks(device),
        "wear": {"erases": device.smart()["erases"]},
        "unreadable": stats["unreadable"],
        "holes_read": device.ssd.reader.holes,
        "series": _series(found.samples),
        "histograms": {
            name: dict(zip(("upper_ns", "count"), one.buckets(), strict=True)) for name, one in histograms.items()
        },
        "input": {
            "requests": found.requests,
            "rejected": source.rejected.rows(),
            "adjusted": source.adjusted.rows(),
            "skipped": dict(source.skipped),
        },
        "complaints": [*source.complaints(), *equal_settings.differences(setup)],
    }


def mostly_lost(result: Mapping[str, Any]) -> str | None:
    """One line if more requests of a result's source were rejected than played, as the result then says nothing about
    that source; else None."""
    rejected = {row["reason"]: row["count"] for row in result["input"]["rejected"]}
    played, lost = result["input"]["requests"], sum(rejected.values())
    if lost <= played:
        return None
    why = ", ".join(f"{reason}: {count:,}" for reason, count in rejected.items())
    return f"{result['source']}: {lost:,} of {lost + played:,} requests could not be replayed ({why})"


def _latency(of: Histogram) -> dict[str, float | int | None]:
    """Latency figures in microseconds; None if there was no request."""
    out: dict[str, float | int | None] = {"n": of.n}
    out["mean"] = round(of.sum_ns / of.n / 1e3, 6) if of.n else None
    out["min"] = of.least_ns / 1e3 if of.n else None
    out["max"] = of.most_ns / 1e3 if of.n else None
    out.update({name: of.quantile(share) / 1e3 if of.n else None for name, share in QUANTILES.items()})
    return out


def _utilisation(device: Device, virtual_s: float) -> dict[str, dict[str, float] | None]:
    """Shares of the virtual time in which dies and channels worked. Work that goes on after the last request ended is
    counted too, so a share can be slightly above 1."""
    out: dict[str, dict[str, float] | None] = {}
    for name, busy in device.busy_ns().items():
        shares = [one / 1e9 / virtual_s for one in busy] if virtual_s else []
        out[name] = None
        if shares:
            mean = sum(shares) / len(shares)
            out[name] = {"mean": round(mean, 6), "least": round(min(shares), 6), "most": round(max(shares), 6)}
    return out


def _data_blocks(device: Device) -> dict[str, Any]:
    """The number of valid data pages, and how many fully programmed data blocks have 0, 1, ... of them."""
    found = block_map.block_map(device.ssd)
    kept = [at for at, name in enumerate(device.ssd.pool.stream_names) if name not in MAPS]
    data = np.isin(found["stream"], kept)
    full = found["valid"][data & (found["next_page"] == device.nand.geometry.pages_per_block)]
    return {
        "mapped_pages": int(found["valid"][data].sum()),
        "full_blocks": np.bincount(full, minlength=device.nand.geometry.pages_per_block + 1).tolist(),
    }


def _series(samples: list[tuple[int, ...]]) -> dict[str, list[float]]:
    columns: dict[str, list[float]] = {name: [row[at] for row in samples] for at, name in enumerate(SERIES)}
    columns["virtual_s"] = [ns / 1e9 for ns in columns["virtual_s"]]
    return columns


def config_of(setup: Setup, device: Device, source: Source, depth: int, wanted: Precondition) -> dict[str, Any]:
    """Everything that produced a result."""
    described = source.describe()
    return {
        "version": version("flashfs"),
        "ftl": device.ftl,
        "options": dict(device.options),
        "geometry": device.nand.geometry.as_dict(),
        "backend": setup.backend if setup.image is None else nandimg.inspect(setup.image).backend,
        "image": None if setup.image is None else str(setup.image),
        "dram": setup.dram,
        "plp": setup.plp,
        "qd": depth or None,
        "trace": asdict(setup.trace) if setup.trace is not None else None,
        "format": setup.format,
        "source": described,
        "source_hash": source.hash(),
        "seed": described.get("seed"),
        "precondition": wanted.canonical(),
        "before": phases.said(phases.sources(setup.before, device.size, device.page_bytes, setup.trace)),
        "warm": phases.said(phases.sources(setup.warm, device.size, device.page_bytes, setup.trace)),
    }


def named(setup: Setup, ftls: str) -> list[Setup]:
    """The same work on each of ``ftls``, a list with commas, with equal settings. An option goes to the FTLs that know
    it, at least one must; ``ftl.option`` is for that FTL alone. With an image, the setup is returned unchanged.
    UsageError for an unknown option."""
    names = listed(ftls)
    if setup.image is not None:
        return [setup]
    known = {name: {option.name for option in scheme(name).all_options()} for name in names}
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    shared = {}
    for key, value in setup.options.items():
        name, dot, option = key.rpartition(".")
        if dot and name in own:
            own[name][option] = value
        elif any(key in some for some in known.values()):
            shared[key] = value
        else:
            there = sorted(set().union(*known.values()))
            raise UsageError(f"option {key}{meant(key, there)}: use {', '.join(there)}")
    setups = []
    for name in names:
        mine = {key: value for key, value in shared.items() if key in known[name]}
        setups.append(replace(setup, ftl=name, options={**mine, **own[name]}))
        scheme(name).resolve(setups[-1].options)
    return equal_settings.level(setups, shared)
