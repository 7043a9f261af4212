"""Preconditioning: fill the device, then overwrite it until its write amplification is steady.

``none``, ``fill`` (every page once, in order), or ``steady[:key=value,...]``: fill, then random overwrites in windows
of a quarter of the device, until cleaning has turned the chip over and then the WAF of three windows in a row lies
within ``tolerance`` of their mean, or until ``most`` devices' worth has been written. The result says which of the two
ended it.

*Turned over*: since the fill, as many blocks were erased as the chip has. Before cleaning begins the WAF of any FTL is
1 and perfectly steady, and with much over-provisioning that phase is long. Also, the first blocks to be cleaned are
those of the fill, whose pages are invalidated in another pattern than those that cleaning wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flashfs.device import Device
from flashfs.errors import UsageError
from flashfs.replay._player import Player
from flashfs.replay.request_source import Source
from flashfs.replay.workloads import PATTERNS, Workload
from flashfs.replay.workloads._grammar import Parameter, Unreadable, number, seed, size, word

FILL_BYTES = 1 << 20
WINDOWS = 3  #: in a row that must agree
WINDOW_SHARE = 4  #: a window is the device divided by this
DEPTH = 32

PARAMETERS = (
    Parameter("tolerance", number, 0.02, "how far windows may lie from their mean, as a share of it"),
    Parameter("most", number, 8.0, "devices' worth of overwrites after which it is not waited for any longer"),
    Parameter("pattern", word(*PATTERNS), "uniform", "which workload overwrites"),
    Parameter("size", size, None, "bytes of an overwrite; default: a page"),
    Parameter("seed", seed, 1, "of the overwrites"),
)
KINDS = ("none", "fill", "steady")

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Precondition:
    """A parsed ``--precondition``; the fields are those of PARAMETERS."""

    kind: str
    tolerance: float = 0.02
    most: float = 8.0
    pattern: str = "uniform"
    size: int | None = None
    seed: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Precondition:
        """Parse the text of ``--precondition``; None is ``none``. UsageError if it is invalid, saying what to use."""
        kind, colon, rest = (text or "none").partition(":")
        if kind not in KINDS:
            raise UsageError(f"--precondition {text}: use {', '.join(KINDS)}")
        values: dict[str, Any] = {}
        known = {one.name: one for one in PARAMETERS} if kind == "steady" else {}
        for pair in rest.split(",") if colon else []:
            key, equals, value = pair.partition("=")
            if key not in known or not equals:
                raise UsageError(f"--precondition {text}: {kind} has {', '.join(known) or 'no keys'}")
            try:
                values[key] = known[key].parse(value)
            except Unreadable as error:
                raise UsageError(f"--precondition {text}: {key}={value}: use {error}") from None
        if values.get("tolerance", 1) == 0:
            raise UsageError(f"--precondition {text}: tolerance=0: use a share above 0")
        return cls(kind, **values)

    def canonical(self) -> str:
        """The text with all defaults filled in: equal texts give equal states of a device."""
        if self.kind != "steady":
            return self.kind
        keys = {one.name: getattr(self, one.name) for one in PARAMETERS}
        return "steady:" + ",".join(f"{key}={value}" for key, value in keys.items() if value is not None)

    def run(self, device: Device, progress: Progress | None = None) -> dict[str, Any] | None:
        """Precondition the device. Returns what was done, or None for ``none``; the counters are 0 afterwards."""
        if self.kind == "none":
            return None
        play(device, _source(device, "sequential", FILL_BYTES, 1, None), progress)
        done: dict[str, Any] = {"asked": self.canonical(), "filled_pages": device.ssd.host_write}
        if self.kind == "steady":
            done.update(self._overwrite(device, progress))
        device.flush()
        device.forget_counts()
        return done

    def _overwrite(self, device: Device, progress: Progress | None) -> dict[str, Any]:
        wafs: list[float] = []
        since = erased = 0  # windows since the chip was turned over, blocks that were erased
        bytes_each = self.size or device.page_bytes
        requests = max(1, device.size // WINDOW_SHARE // bytes_each)
        while len(wafs) < self.most * WINDOW_SHARE:
            device.forget_counts()
            source = _source(device, self.pattern, bytes_each, self.seed + len(wafs), requests)
            play(device, source, progress)
            stats = device.stats()
            wafs.append(stats["waf"])
            since += erased >= device.nand.blocks
            erased += stats["nand"]["erase"]
            last = wafs[-WINDOWS:]
            mean = sum(last) / len(last)
            if since >= WINDOWS and max(abs(one - mean) for one in last) <= self.tolerance * mean:
                return self._found(wafs, erased / device.nand.blocks, True)
        return self._found(wafs, erased / device.nand.blocks, False)

    def _found(self, wafs: list[float], erases_a_block: float, steady: bool) -> dict[str, Any]:
        return {
            "steady": steady, "waf": wafs, "overwritten_devices": len(wafs) / WINDOW_SHARE,
            "erases_a_block": round(erases_a_block, 3),
        }  # fmt: skip


def _source(device: Device, pattern: str, bytes_each: int, seed: int, requests: int | None) -> Source:
    """A workload of writes only, over the whole device."""
    whole = device.size // bytes_each
    if whole == 0:
        bytes_each, whole = device.page_bytes, device.size // device.page_bytes
    text = f"{pattern}:ops={requests or whole},write=1,size={bytes_each},seed={seed},qd={DEPTH}"
    return Workload(text, device.size, device.page_bytes)


def play(device: Device, source: Source, progress: Progress | None) -> int:
    """Play all requests of a source, in a closed loop of the source's own depth or DEPTH. Returns how many."""
    player = Player(device.ssd, source.qd or DEPTH, device.quiet_at())
    done = 0
    for batch in source.batches():
        done += player.take(batch)
        if progress is not None:
            progress(done, None)
    return done
