"""Judges a damaged image: it opens and behaves, or is refused in one line. Anything else is a finding."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from fuzz_bases import Base, content
from fuzz_mutate import ALL, SEALED, Mutation, mutate
from fuzz_picture import picture

from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import FlashfsError, UncorrectableError
from nandimg.errors import NandError, NandimgError

REFUSALS = (FlashfsError, NandimgError)


class Finding(Exception):
    """What must not happen, in one line."""


@dataclass(slots=True)
class Tally:
    """How inputs ended."""

    outcomes: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def expecting(what: str) -> Iterator[list[str]]:
    """A refusal (one line, noted in the list) or nothing; any other exception is a finding, and so is a breach of the
    chip's rules: an engine that follows a forged table there would have written to it."""
    refused: list[str] = []
    try:
        yield refused
    except NandError as error:
        raise Finding(f"{what}: {type(error).__name__}: {error}") from error
    except REFUSALS as error:
        if "\n" in str(error) or not str(error):
            raise Finding(f"{what}: an error that is not one line: {error!r}") from error
        refused.append(str(error))
    except Finding:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Finding(f"{what}: {type(error).__name__}: {error}") from error


def damaged(
    base: Base, rnd: Random, only: str = "", sealed: tuple[Mutation, ...] = SEALED
) -> tuple[bytes, list[str], bool]:
    """(the image's bytes, the mutations, whether every content is one that the host wrote)."""
    p = picture(base.raw)
    if only:
        kept = ALL[only](p, rnd)
        return bytes(p.raw), [only], kept
    names, kept = mutate(p, rnd, sealed)
    return bytes(p.raw), names, kept


def views(path: Path, rnd: Random, page: bool) -> None:
    """Everything that `dump` shows; the HTML page only if asked for: it takes as long as all the others."""
    if page:
        with expecting("dump --html"):
            inspect.html(path)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("dump header", lambda: inspect.header(path)),
        ("dump blocks", lambda: inspect.blocks(path)),
        ("dump page", lambda: inspect.page(path, rnd.randrange(200))),
        ("dump lpa", lambda: inspect.lpa(path, rnd.randrange(20))),
        ("dump log", lambda: inspect.log(path)),
        ("dump scheme", lambda: inspect.scheme(path)),
        ("dump recovery", lambda: inspect.recovery(path)),
        ("fsck", lambda: inspect.problems(path, data=True)),
    ]
    for what, call in calls if rnd.random() < 0.25 else rnd.sample(calls, 2):
        with expecting(what):
            call()


class Judge:
    """One image after the other, in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.tally = Tally()
        self.tried: set[bytes] = set()

    def close(self) -> None:
        os.close(self.fd)
        self.path.unlink(missing_ok=True)

    def image(self, base: Base, rnd: Random, only: str = "", sealed: tuple[Mutation, ...] = SEALED) -> None:
        """One input, of mutation ``only`` or drawn from ``sealed``; Finding says what was wrong with it."""
        raw, names, kept = damaged(base, rnd, only, sealed)
        os.ftruncate(self.fd, len(raw))
        os.pwrite(self.fd, raw, 0)
        try:
            views(self.path, rnd, crc32(raw) % 6 == 0)  # without a throw of the dice: old seeds mean what they meant
            outcome = self.mount(base, rnd, kept)
        except Finding as finding:
            raise Finding(f"{base.name} {'+'.join(names)}: {finding}") from finding.__cause__
        self.tally.outcomes[outcome] += 1

    def mount(self, base: Base, rnd: Random, kept: bool) -> str:
        """Recover, read all, write, flush, close, reopen."""
        device = None
        with expecting("open") as refused:
            device = Device.open(self.path, plp=base.plp and rnd.random() < 0.7)
        if device is None:
            assert refused
            return "refused"
        new: dict[int, bytes] = {}
        self.tried.clear()
        clean = rnd.random() < 0.5
        with contextlib.closing(_Letting(device)):
            problems(device)
            lost = self.read_all(device, base, kept, new)
            wrote = self.write_some(device, rnd, new)
            problems(device)
            lost += self.read_all(device, base, kept, new)
            if clean:
                with expecting("close") as refused:
                    device.close()
                clean = not refused
        if not wrote:
            return "opens, takes no writes"
        with expecting("reopen") as refused:
            device = Device.open(self.path)
        # What a forger put where no clean mount looks may be newer than anything of ours: a recovery has to believe it.
        promised = clean or kept
        if refused and lost and "no free block" in refused[0]:
            return "opens, and is full of pages that cannot be read"
        if refused and lost and "the recovered mapping cannot be" in refused[0]:
            return "opens, refused after a crash: a page gone, and what stood in its place too"
        if refused and promised:
            raise Finding(f"written and flushed, then refused: {refused[0]}")
        if refused:
            return "opens, refused after a crash: a forgery"
        with contextlib.closing(_Letting(device)):
            problems(device)
            self.read_all(device, base, kept, new if promised else {}, durable=True, skip=() if promised else new)
        return "opens, some pages lost" if lost else "opens, sound"

    def read_all(
        self, device: Device, base: Base, kept: bool, new: dict[int, bytes], durable: bool = False,
        skip: Container[int] = (),
    ) -> int:  # fmt: skip
        """Every LPA reads something that was written there, or says that it cannot be read; returns how many cannot."""
        page, lost = device.page_bytes, 0
        hole = bytes(page)
        for lpa in range(min(device.ssd.lpas, 2000)):
            try:
                with_error = False
                found = device.read(lpa * page, page)
            except UncorrectableError:
                with_error = True
                lost += 1
            except BaseException as error:
                raise Finding(f"read of LPA {lpa}: {type(error).__name__}: {error}") from error
            if lpa in skip:
                continue
            if lpa in new:
                if with_error or found != new[lpa]:
                    when = "after reopening" if durable else "at once"
                    raise Finding(f"LPA {lpa} does not read what was written and flushed, {when}")
            elif not with_error and kept and found != hole and found not in base.written[lpa] | self.tried:
                raise Finding(f"LPA {lpa} reads what nobody wrote there")
        return lost

    def write_some(self, device: Device, rnd: Random, new: dict[int, bytes]) -> bool:
        """Overwrite, trim and flush; what was flushed is noted in ``new``. False if the device refused."""
        page, lpas = device.page_bytes, device.ssd.lpas
        keeps = device.nand.keeps_data
        wanted: dict[int, bytes] = {}
        with expecting("write") as refused:
            for _ in range(rnd.choice((1, 4, 12, 40))):
                lpa = rnd.randrange(min(lpas, 2000))
                if device.ssd.mapping.remapping is not None and wanted and rnd.random() < 0.3:
                    source = rnd.choice(sorted(wanted))
                    held = wanted.pop(source)
                    wanted.pop(lpa, None)
                    self.tried.add(held)
                    device.remap(lpa * page, source * page, page)
                    wanted |= {source: held, lpa: held}
                elif rnd.random() < 0.1:
                    wanted.pop(lpa, None)
                    device.trim(lpa * page, page)
                    wanted[lpa] = bytes(page)
                else:
                    data = content(lpa, rnd.getrandbits(40), page)
                    wanted.pop(lpa, None)
                    self.tried.add(data)
                    device.write(lpa * page, data)
                    wanted[lpa] = data if keeps else bytes(page)
            device.flush()
        if refused:
            return False
        new.update(wanted)
        return True


def problems(device: Device) -> None:
    """A list of lines, whatever is broken."""
    try:
        found = device.problems()
    except BaseException as error:
        raise Finding(f"problems(): {type(error).__name__}: {error}") from error
    if not isinstance(found, list) or not all(isinstance(line, str) and "\n" not in line for line in found):
        raise Finding(f"problems(): {found!r}")


class _Letting:
    """Lets an image go as a crash would, whatever came before."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def close(self) -> None:
        self.device.close(clean=False)
