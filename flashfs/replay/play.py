"""One source on one device, in virtual time, and everything that came of it as one plain dict.

``run`` is what `flashfs replay`, `flashfs sweep` and Python share. The dict holds what docs/replay.md lists, and in
``config`` all that made it: the same config gives the same figures, to the bit, but for ``wall_s`` and ``pages_per_s``.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import nandimg
from flashfs.device import Device
from flashfs.engine import block_map
from flashfs.errors import UsageError
from flashfs.ftl import scheme
from flashfs.replay._player import Histogram, Player
from flashfs.replay.precondition import Precondition
from flashfs.replay.source import Batch, Source
from flashfs.replay.sources import open_source
from flashfs.replay.traces import Options
from flashfs.shape import DEFAULT_FTL
from nandimg import Geometry

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "p9999": 0.9999}
SAMPLES = 400  #: of the series at most; then every second one goes
FIRST_STEP = 1024  #: requests between samples, at first
SERIES = (
    "virtual_s", "host_write", "host_read", "program", "gc_program", "erase", "free_blocks", "cache_hits",
    "cache_lookups",
)  # fmt: skip
MAPS = frozenset({"map", "meta"})  #: streams of blocks that hold no data of the host's
DEPTH = 1  #: of the closed loop, if neither the source nor anybody says otherwise

Progress = Callable[[int, int | None], None]  #: (requests done, requests in all, if that is known)


@dataclass(frozen=True)
class Setup:
    """What to play on what. ``qd`` None: the source's own depth, or its times if it has any; 0: its times.

    ``image`` plays on a copy of an image instead of a chip in memory; then geometry, backend and FTL are its own. An
    FTL that is not registered is imported only if ``ftl`` names it too, so that must never be taken from an image.
    ``prepared`` is a folder in which preconditioned images are kept, to be used again.
    """

    source: str
    ftl: str = DEFAULT_FTL
    options: dict[str, Any] = field(default_factory=dict)
    geometry: Geometry = field(default_factory=Geometry)
    backend: str = "meta"
    dram: int | None = None
    qd: int | None = None
    precondition: str | None = None
    trace: Options | None = None
    format: str | None = None
    image: Path | None = None
    prepared: Path | None = None
    plp: bool = False


def run(setup: Setup, progress: Progress | None = None) -> dict[str, Any]:
    """Play it. UsageError, BindError and TraceError are for the person who asked."""
    wanted = Precondition.parse(setup.precondition)
    with ExitStack() as stack:
        device, prepared = stack.enter_context(_device(setup, wanted, progress))
        source = open_source(
            setup.source, device.size, page_bytes=device.page_bytes, options=setup.trace, format=setup.format
        )
        if prepared is None:
            prepared = wanted.run(device, progress)
        device.forget_counts()
        depth = _depth(setup, source)
        player = Player(device.ssd, depth, device.quiet_at())
        found = _play(player, source, progress)
        made = _result(setup, device, source, player, found)
        made["precondition"] = prepared
        made["config"] = _config(setup, device, source, depth, wanted)
        return made


def _depth(setup: Setup, source: Source) -> int:
    """Of the closed loop; 0 for an open one."""
    if setup.qd is not None:
        if setup.qd == 0 and not source.timed:
            raise UsageError(f"--qd 0: {source.name} has no times of its own; a depth from 1 on would do")
        return setup.qd
    if source.qd is not None:
        return source.qd
    return 0 if source.timed else DEPTH


# --- the device


@contextmanager
def _device(
    setup: Setup, wanted: Precondition, progress: Progress | None
) -> Iterator[tuple[Device, dict[str, Any] | None]]:
    """(a device that nobody else has, what preconditioned it if that is done already)."""
    if setup.image is not None:
        with _copied(setup.image) as path, _opened(path, setup) as device:
            yield device, None
    elif setup.prepared is not None and wanted.kind != "none":
        kept = _kept(setup, wanted, progress)
        with _copied(kept) as path, _opened(path, setup) as device:
            yield device, json.loads(kept.with_suffix(".json").read_text())
    else:
        device = Device.memory(
            setup.geometry, setup.ftl, setup.options, backend=setup.backend, plp=setup.plp, dram=setup.dram
        )
        try:
            yield device, None
        finally:
            device.close(clean=False)


@contextmanager
def _opened(path: Path, setup: Setup) -> Iterator[Device]:
    named = nandimg.inspect(path).ftl in ("", setup.ftl)
    device = Device.open(
        path, ftl=setup.ftl if named else None, options=setup.options, dram=setup.dram, sync="none", plp=setup.plp
    )
    try:
        yield device
    finally:
        device.close(clean=False)


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A copy that is gone afterwards: what is played does not change the image."""
    with tempfile.TemporaryDirectory(prefix="flashfs-replay-") as folder:
        copy = Path(folder, "image")
        _copy(path, copy)
        yield copy


def _copy(source: Path, target: Path) -> None:
    """Holes stay holes, and a file system that can share blocks does."""
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
    """The preconditioned image of this setup in its folder, made now if it is not there."""
    assert setup.prepared is not None
    options = scheme(setup.ftl).resolve(setup.options)
    said = {
        "version": version("flashfs"), "ftl": setup.ftl, "options": options, "geometry": setup.geometry.as_dict(),
        "backend": setup.backend, "precondition": wanted.canonical(), "plp": setup.plp,
    }  # fmt: skip
    name = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:24]
    path = setup.prepared / f"{setup.ftl}-{name}.nand"
    if path.exists() and path.with_suffix(".json").exists():
        return path
    setup.prepared.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=setup.prepared) as folder:
        made = Path(folder, "image")
        nandimg.create(made, setup.geometry, backend=setup.backend)
        device = Device.open(made, ftl=setup.ftl, options=setup.options, sync="none", plp=setup.plp)
        try:
            done = wanted.run(device, progress)
        except BaseException:
            device.close(clean=False)
            raise
        device.close()
        Path(folder, "said").write_text(json.dumps(done))
        made.replace(path)
        Path(folder, "said").replace(path.with_suffix(".json"))
    return path


# --- the requests


@dataclass
class Found:
    """What ``_play`` saw besides what the player counts."""

    requests: int = 0
    wall_s: float = 0.0
    samples: list[tuple[int, ...]] = field(default_factory=list)


def _play(player: Player, source: Source, progress: Progress | None) -> Found:
    """All requests; the next batch is read while one is played."""
    found = Found(samples=[player.sample()])
    step, since = FIRST_STEP, 0
    for batch in _ahead(source):
        at = 0
        while at < len(batch):
            part = batch.slice(at, min(len(batch), at + step - since))
            before = time.perf_counter()
            player.play(part.time_ns, part.op, part.offset, part.length, *(part.hashes or ()))
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
    """The batches of a source, each made by another thread while the one before is in use."""
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
        "waf": stats["waf"],
        "map_bytes": sum(packed for packed, _ in device.ssd.mapping.tables().values()),
        "dram": stats["dram"],
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
        "complaints": source.complaints(),
    }


def _latency(of: Histogram) -> dict[str, float | int | None]:
    """In microseconds; None where there was no request."""
    out: dict[str, float | int | None] = {"n": of.n}
    out["mean"] = round(of.sum_ns / of.n / 1e3, 6) if of.n else None
    out["min"] = of.least_ns / 1e3 if of.n else None
    out["max"] = of.most_ns / 1e3 if of.n else None
    out.update({name: of.quantile(share) / 1e3 if of.n else None for name, share in QUANTILES.items()})
    return out


def _utilisation(device: Device, virtual_s: float) -> dict[str, dict[str, float] | None]:
    """Shares of the virtual time in which dies and channels worked. What the last requests left to do, work that they
    did not wait for, is counted too, so a share can come to a little above 1."""
    out: dict[str, dict[str, float] | None] = {}
    for name, busy in device.busy_ns().items():
        shares = [one / 1e9 / virtual_s for one in busy] if virtual_s else []
        out[name] = None
        if shares:
            mean = sum(shares) / len(shares)
            out[name] = {"mean": round(mean, 6), "least": round(min(shares), 6), "most": round(max(shares), 6)}
    return out


def _data_blocks(device: Device) -> dict[str, Any]:
    """Pages that hold data, and how many blocks that are programmed to their end have 0, 1, ... of them."""
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


def _config(setup: Setup, device: Device, source: Source, depth: int, wanted: Precondition) -> dict[str, Any]:
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
    }


def named(setup: Setup, ftls: str) -> list[Setup]:
    """The same work on each of ``ftls``, with commas between them; an option must be known to one of them at least,
    and goes to those that know it."""
    names = [name for name in ftls.split(",") if name]
    if not names or len(set(names)) < len(names):
        raise UsageError(f"--ftl {ftls}: names with commas between them, each once, would do")
    if setup.image is not None:
        return [setup]
    known = {name: {option.name for option in scheme(name).all_options()} for name in names}
    for key in setup.options:
        if not any(key in some for some in known.values()):
            raise UsageError(f"option {key}: {', '.join(sorted(set().union(*known.values())))} would do")
    return [
        replace(setup, ftl=name, options={key: value for key, value in setup.options.items() if key in known[name]})
        for name in names
    ]
