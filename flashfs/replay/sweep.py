"""Sweeps: FTLs x traces x options x DRAM sizes, a file for each result; run again, they continue.

A result's file is named by a hash of everything that produced it, and is written atomically. So a sweep that is run
again, after a crash or with one more size, finds the results that exist.
"""

from __future__ import annotations

import fcntl
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashfs.errors import FlashfsError, UsageError
from flashfs.replay import grid, results
from flashfs.replay.results import saved_row
from flashfs.replay.workers import Outcome, Workers
from flashfs.text import shown

if TYPE_CHECKING:
    from flashfs.replay.play import Setup


def load(path: Path, tell: grid.Tell = lambda line: None) -> list[Setup]:
    """The points of a TOML file; ``tell`` gets a line about each choice that the file leaves open. UsageError, in one
    line, names the file and the invalid key."""
    try:
        given = tomllib.loads(path.read_text("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no TOML: {str(error).splitlines()[0]}") from None
    try:
        return grid.expand(given, folder=path.parent, tell=tell)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


@dataclass(frozen=True)
class Place:
    """Where a sweep's results are: one file per point in the folder ``points``, and all of them in ``joined``."""

    points: Path
    joined: Path

    @classmethod
    def at(cls, out: Path) -> Place:
        """``out`` is the joined file (.parquet or .csv), or a folder for everything."""
        if out.suffix in results.FORMATS:
            return cls(out.with_name(f"{out.name}.{results.POINTS}"), out)
        return cls(out / results.POINTS, out / results.JOINED)

    def file(self, key: str) -> Path:
        return self.points / f"{key}.json"

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make the folders, lock out a second sweep, and remove drafts that a killed sweep left."""
        if self.joined.exists() and not self.points.exists():
            raise UsageError(f"--out {self.joined}: it is there, and of no sweep; use another name")
        try:
            self.points.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise UsageError(f"--out {self.points.parent}: use a folder, or a name for one") from None
        handle = os.open(self.points, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for draft in self.points.glob(".*.draft"):
                draft.unlink(missing_ok=True)
            yield
        except BlockingIOError:
            raise FlashfsError(f"{self.points}: another sweep is at work there") from None
        finally:
            os.close(handle)

    def saved(self, key: str) -> dict[str, Any] | None:
        """The stored result or error of a point; None if there is none. FlashfsError if the file holds neither."""
        try:
            found = json.loads(self.file(key).read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("key") != key or not ("result" in found or "error" in found):
            raise FlashfsError(f"{self.file(key)}: no result of a sweep; without that file it is made anew")
        return found

    def save(self, key: str, setup: Setup, outcome: Outcome) -> None:
        saved: dict[str, Any] = {"key": key, "code": grid.code(), "point": grid.plain(setup)}
        saved |= {"error": outcome.error} if outcome.error is not None else {"result": outcome.result}
        with results.replacing(self.file(key)) as draft:
            draft.write_text(json.dumps(saved))


@dataclass
class Report:
    """How a sweep went: how many points it has, how many had a result before, the rows of all points that are stored
    now, and (point, reason) for each point that failed or could not play most of its requests."""

    total: int = 0
    before: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


class Listener:
    """Receives the progress of a sweep. This base class ignores it."""

    def begin(self, total: int, before: int) -> None:
        """``before`` of ``total`` points have their result from an earlier run."""

    def playing(self, setup: Setup, done: int, total: int | None) -> None:
        """``done`` requests of a point are played, of ``total`` if that is known."""

    def end(self, setup: Setup, error: str | None) -> None:
        """A point has its result on disk, or failed with ``error``."""


def run(setups: list[Setup], out: Path, workers: Workers, listener: Listener | None = None) -> Report:
    """Replay the points that have no result yet, and join all results into one file; what failed before is tried again.

    If it is interrupted, all results so far are kept. Raises FlashfsError if another sweep is running in ``out``,
    UsageError if ``out`` is not a place for a sweep.
    """
    listener = listener or Listener()
    place = Place.at(out)
    keyed = dict(zip(grid.keys(setups), setups, strict=True))
    with place.open():
        left = {key: setup for key, setup in keyed.items() if "result" not in (place.saved(key) or {})}
        report = Report(len(keyed), len(keyed) - len(left))
        listener.begin(report.total, report.before)
        if left:
            place.joined.unlink(missing_ok=True)  # until it is rebuilt, the folder has the results so far
        try:
            _play(left, place, workers, listener)
        finally:
            _join(keyed, place, report)
    return report


def _play(left: Mapping[str, Setup], place: Place, workers: Workers, listener: Listener) -> None:
    def progress(key: str, done: int, total: int | None) -> None:
        listener.playing(left[key], done, total)

    with closing(workers.outcomes(left.items(), progress)) as outcomes:
        for outcome in outcomes:
            place.save(outcome.key, left[outcome.key], outcome)
            listener.end(left[outcome.key], outcome.error)


def _join(keyed: Mapping[str, Setup], place: Place, report: Report) -> None:
    """Join the results in the order of the points, whichever finished first."""
    from flashfs.replay.play import mostly_lost

    for key, name in zip(keyed, names(keyed.values()), strict=True):
        saved = place.saved(key)
        if saved is not None:
            report.rows.append(saved_row(saved))
            why = saved["error"] if "error" in saved else mostly_lost(saved["result"])
            if why is not None:
                report.failed.append((name, why))
    if report.rows:
        results.write(place.joined, report.rows, append=False)


def names(setups: Iterable[Setup]) -> list[str]:
    """Readable names of points: the FTL, the source, and everything else that is not the same for all.

    A number of blocks is shown with its over-provisioning, as that is what a sweep asks for.
    """
    listed = list(setups)
    flat = [results.row(grid.uneven(setup)) for setup in listed]
    names = dict.fromkeys(column for one in flat for column in one if column not in ("ftl", "source"))
    columns = [column for column in names if len({str(one.get(column)) for one in flat}) > 1]
    return [
        ", ".join([one["ftl"], one["source"], *(_said(c, one[c], of) for c in columns if one.get(c) is not None)])
        for one, of in zip(flat, listed, strict=True)
    ]


def _said(column: str, value: Any, setup: Setup) -> str:
    name = column.rpartition(".")[2]
    if name == "blocks":
        return f"op={setup.geometry.op:.3g} ({value} blocks)"
    return f"{name}={shown(value) if column == 'dram' else value}"
