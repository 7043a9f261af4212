"""Checks of what a host sees: names, options, the chip's rules, contents, clean and read-only mounts, determinism."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import nandimg
from flashfs.check.host import Host
from flashfs.check.setting import LARGE_PAGES, ROOMY, Broken, Counts, Setting, need, same
from flashfs.device import ENGINE_OOB, Device
from flashfs.errors import BindError, UsageError
from flashfs.ftl import Option, Scheme, scheme
from nandimg import Cut, FaultyNand, NandError, PowerCut

PARTS = ("mapping", "validity", "placement", "cleaning")
NONESUCH = "no-such-option"
SECTOR = 512  #: bytes

# --- names


def names(setting: Setting) -> Counts:
    of = scheme(setting.spec)
    same(of.name, setting.spec, "name")
    need(bool(of.title.strip()), "title: there is none")
    for field in ("title", "paper", "about"):
        need("\n" not in getattr(of, field), f"{field}: more than one line")
    need(set(of.replaces) <= set(PARTS), f"replaces: {', '.join(of.replaces)}; the parts are {', '.join(PARTS)}")
    options = of.all_options()
    called = [option.name for option in options]
    for name in called:
        need(called.count(name) == 1, f"option {name}: there are {called.count(name)} of that name")
    for option in options:
        _option(of, option)
    _unknown(of)
    _oob(setting, of)
    _bound(setting, of)
    return {"options": len(options), "views": _views(setting, of)}


def _option(of: Scheme, option: Option) -> None:
    """Its default is valid, and what is outside its bounds is refused."""
    need(bool(option.help.strip()), f"option {option.name}: no help")
    same(option.parse(option.default), option.default, f"option {option.name}: its default")
    outside = [NONESUCH] if option.choices else [option.low - 1, option.high + 1, NONESUCH]
    for value in outside:
        try:
            of.resolve({option.name: value})
        except UsageError:
            continue
        raise Broken(f"option {option.name}={value}: not refused")


def _unknown(of: Scheme) -> None:
    try:
        of.resolve({NONESUCH: 1})
    except UsageError as error:
        need("\n" not in str(error), "an unknown option: refused in more than one line")
    else:
        raise Broken(f"option {NONESUCH}: not refused")
    same(set(of.resolve({})), {option.name for option in of.all_options()}, "options that are resolved")


def _oob(setting: Setting, of: Scheme) -> None:
    """A chip with the OOB bytes that it needs is bound; one with fewer is refused before anything is written to it."""
    geometry = setting.fitting(ROOMY)
    most = ENGINE_OOB + of.scheme_oob
    need(of.scheme_oob >= 0, f"scheme_oob: {of.scheme_oob}")
    with Host(setting.spec, replace(geometry, oob_bytes=most - 1)) as host:
        try:
            host.open()
        except BindError:
            same(nandimg.inspect(host.path).ftl, "", "a chip with too little OOB is refused, and bound to")
        else:
            raise Broken(f"{most - 1} bytes of OOB per page: not refused, and it needs {most}")
    with Host(setting.spec, replace(geometry, oob_bytes=most)) as host:
        host.open()
        _saved(of, host)


def _saved(of: Scheme, host: Host) -> None:
    """``save()`` returns no more than ``saved_bytes``, the room that a checkpoint has for it."""
    host.write(0, b"x" * host.geometry.logical_bytes)
    saved = sum(len(memoryview(section).cast("B")) for section in host.device.ssd.mapping.save().values())
    room = of.saved_bytes(host.geometry)
    need(saved <= room, f"saved_bytes: {room}, and save() returns {saved} bytes")


def _bound(setting: Setting, of: Scheme) -> None:
    """Fixed options are stored with the image, and none can be changed later."""
    with Host(setting.spec, setting.fitting(ROOMY)) as host:
        host.open()
        stored = nandimg.inspect(host.path).options or {}
        same(set(stored), {option.name for option in of.options if option.fixed}, "options stored in the image")
        host.close()
        for name, value in stored.items():
            option = next(option for option in of.options if option.name == name)
            for other in {*(option.choices or (option.low, option.high))} - {value}:
                with suppress(BindError):
                    Device.open(host.path, ftl=setting.spec, options={name: str(other)}).close()
                    raise Broken(f"option {name}: fixed, and changed from {value} to {other}")


def _views(setting: Setting, of: Scheme) -> int:
    """Views, figures, and what it says of an LPA and of an OOB are plain data, as JSON has them."""
    with Host(setting.spec, setting.fitting(ROOMY)) as host:
        device = host.open()
        host.write(0, b"x" * 40 * host.page)
        host.flush()
        shown: dict[str, Any] = {name: view(device) for name, view in of.views.items()}
        shown["figures"] = device.ssd.mapping.figures()
        shown["explain"] = [device.ssd.mapping.explain(lpa) for lpa in (0, host.geometry.lpas - 1)]
        shown["oob"] = of.describe_oob(bytes(of.scheme_oob))
        for name, what in shown.items():
            try:
                json.dumps(what)
            except (TypeError, ValueError) as error:
                raise Broken(f"view {name}: not plain dicts, lists and numbers ({error})") from None
        return len(shown)


# --- rules


@contextmanager
def breaches() -> Iterator[list[str]]:
    """Every breach of the rules that the chip refuses, including those that the FTL catches silently."""
    seen: list[str] = []
    begin = NandError.__init__

    def noted(self: NandError, *what: Any) -> None:
        begin(self, *what)
        seen.append(str(self))

    NandError.__init__ = noted  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        NandError.__init__ = begin  # type: ignore[method-assign]


def rules(setting: Setting) -> Counts:
    counts = {"chips": 0, "requests": 0, "mounts": 0}
    with breaches() as seen:
        for preset in setting.presets():
            for options in ({}, {"buffer": "0", "wear_spread": "2"}, {"buffer": "3", "checkpoint_every": "9"}):
                rnd = setting.chance("rules", preset, options)
                with Host(setting.spec, setting.geometry(preset), options) as host:
                    try:
                        _churn(host, rnd, setting.some(150, 2_000))
                    except NandError as error:
                        raise Broken(f"{preset}: {error}") from None
                    counts["chips"] += 1
                    counts["requests"] += host.requests
                    counts["mounts"] += host.mounts
                need(not seen, f"{preset}: {seen[0] if seen else ''}")
    return counts


def _churn(host: Host, rnd: random.Random, requests: int) -> None:
    """Requests and mounts; the whole content is compared after each."""
    host.open()
    for _ in range(requests):
        kind = rnd.random()
        if kind < 0.03:
            host.close(clean=True)
            host.open()
            host.sound("after a clean mount")
        elif kind < 0.06:
            host.flush()
            host.close(clean=False)
            host.open()
            host.sound("after a kill")
        elif kind < 0.08:
            host.device.checkpoint()
        else:
            host.anything(rnd)
        host.look("after a request")
    host.sound("at the end")


# --- content


def content(setting: Setting) -> Counts:
    counts = {"requests": 0, "bytes": 0, "overwrites": 0, "cache_hits": 0}
    chips = [(setting.fitting(ROOMY), buffer, 0) for buffer in ("0", "1", "7", "64")]
    chips += [(setting.fitting(LARGE_PAGES), buffer, cached) for buffer, cached in (("0", 0), ("2", 9), ("7", 200))]
    for geometry, buffer, cached in chips:
        rnd = setting.chance("content", buffer)
        with Host(setting.spec, geometry, {"buffer": buffer}) as host:
            host.open(**_budget(host, cached))
            host.look("a blank device")
            for _ in range(setting.some(250, 5_000)):
                counts["bytes"] += _ragged(host, rnd)
            host.look("after ragged requests")
            for _ in range(setting.some(4, 40)):
                host.write(0, rnd.randbytes(geometry.logical_bytes))
                host.look("after an overwrite of the whole device")
                counts["overwrites"] += 1
            host.trim(0, geometry.logical_bytes)
            host.look("after a trim of the whole device")
            host.flush()
            counts["cache_hits"] += host.device.ssd.cache.hits
            host.close(clean=False)
            host.open()
            host.look("after a trim of the whole device, a flush and a kill")
            host.sound("at the end")
            counts["requests"] += host.requests
    need(counts["cache_hits"] > 0, "nothing was ever read from the data cache")
    return counts


CACHE_SLOT = 20  #: bytes of the data cache beside each page


def _budget(host: Host, cached: int) -> dict[str, int]:
    """The DRAM budget, as keywords of ``Host.open``, that leaves at least ``cached`` pages to the data cache. It has
    TABLES_GROW to spare, since the tables may grow."""
    if not cached:
        return {}
    host.open()
    host.close(clean=True)
    tables = sum(packed for packed, _ in host.open().ssd.dram().values())  # as the next mount has them
    host.close(clean=True)
    return {"dram": tables + TABLES_GROW + cached * (host.page + CACHE_SLOT)}


TABLES_GROW = 32 << 10  #: bytes, on chips as small as these


def _ragged(host: Host, rnd: random.Random) -> int:
    """One request of any offset and length, or of sectors; then a read around it. Returns its bytes."""
    page, size = host.page, host.geometry.logical_bytes
    length = rnd.choice((0, 1, 7, page - 1, page, page + 1, 3 * page, 5 * page + 13, 40 * page))
    unit = 1
    if rnd.random() < 0.4:  # what a host with sectors of 512 bytes asks for
        unit, length = SECTOR, SECTOR * rnd.choice((1, 2, 3, 5, 7, 9, 40))
    offset = rnd.randrange((size - length) // unit + 1) * unit
    kind = rnd.random()
    if kind < 0.6:
        host.write(offset, rnd.randbytes(length))
    elif kind < 0.8:
        host.trim(offset, length)
    elif kind < 0.9 and offset >= length:
        host.copy(rnd.randrange((offset - length) // unit + 1) * unit, offset, length)
    else:
        host.flush()
    first, last = max(0, offset - page), min(size, offset + length + page)
    host.look("around a request", first, last - first)
    return length


# --- clean


def clean(setting: Setting) -> Counts:
    counts = {"mounts": 0, "checkpoint_pages": 0}
    for preset in setting.presets():
        rnd = setting.chance("clean", preset)
        with Host(setting.spec, setting.geometry(preset)) as host:
            host.open()
            for n in range(setting.some(12, 100)):
                for _ in range(rnd.choice((0, 0, 1, 30))):
                    host.anything(rnd)
                host.close(clean=True)
                device = host.open()
                when = f"{preset}, clean mount {n + 1}"
                need(device.recovery.clean, f"{when}: {device.recovery.summary()}")
                steps = device.recovery.steps
                same(sum(step.spare_reads for step in steps), 0, f"{when}: spare areas that it read")
                same(sum(step.programs for step in steps), 0, f"{when}: pages that it programmed")
                reads, most = sum(step.reads for step in steps), device.ssd.meta.checkpoint_pages + 4
                need(reads <= most, f"{when}: {reads} pages read, and a checkpoint has {most} at most")
                counts["mounts"] += 1
                counts["checkpoint_pages"] += reads
                host.look(when)
            host.sound(f"{preset}, at the end")
    return counts


# --- readonly


def readonly(setting: Setting) -> Counts:
    counts = {"mounts": 0, "clean": 0, "crashed": 0, "bytes": 0}
    for preset in setting.presets():
        for n in range(setting.some(6, 60)):
            rnd = setting.chance("readonly", preset, n)
            with Host(setting.spec, setting.geometry(preset)) as host:
                left_clean = _leave(host, rnd, n)
                before = host.image()
                _browse(host, scheme(setting.spec), f"{preset}, image {n}")
                host.close()
                need(host.image() == before, f"{preset}, image {n}: bytes of it have changed")
                counts["mounts"] += 1
                counts["clean" if left_clean else "crashed"] += 1
                counts["bytes"] += len(before)
    return counts


def _leave(host: Host, rnd: random.Random, n: int) -> bool:
    """Leave an image: unmounted (n % 3 = 0), killed between two requests, or with a power cut in an operation. Returns
    whether it was unmounted."""
    cut = Cut(rnd.randrange(30, 150), rnd.choice(("prefix", "oob-only", "data-only"))) if n % 3 == 2 else None
    with suppress(PowerCut):
        host.open(front=lambda chip: FaultyNand(chip, (cut,)))
        for _ in range(60):
            host.anything(rnd)
    host.close(clean=n % 3 == 0)
    return n % 3 == 0


def _browse(host: Host, of: Scheme, when: str) -> None:
    """Read the content, the figures and the views; every change must be refused."""
    device = host.open(readonly=True)
    device.read(0, device.size)
    host.sound(when)
    for ask in (device.stats, device.smart, device.config):
        ask()
    for view in of.views.values():
        view(device)
    for change in (lambda: device.write(0, b"x"), lambda: device.trim(0, 512), device.flush, device.checkpoint):
        try:
            change()
        except UsageError:
            continue
        raise Broken(f"{when}: opened read-only, and a change is not refused")


# --- determinism

HEADERS = 2 * nandimg.image.HEADER_BYTES  #: bytes of an image that are not compared: they hold its UUID


def determinism(setting: Setting) -> Counts:
    counts = {"requests": 0, "figures": 0}
    geometry = setting.fitting(ROOMY)
    for n in range(setting.some(3, 12)):
        first, second = (_life(setting, geometry, n) for _ in range(2))
        for name, value in first.items():
            if name != "image":
                same(second[name], value, f"run {n}, the second time: {name}")
        need(second["image"] == first["image"], f"run {n}, the second time: another image")
        counts["requests"] += first["requests"]
        counts["figures"] += sum(len(value) if isinstance(value, dict) else 1 for value in first.values())
    return counts


def _life(setting: Setting, geometry: nandimg.Geometry, n: int) -> dict[str, Any]:
    """A workload with a clean mount and a kill in it; everything that can be measured of it."""
    rnd = setting.chance("determinism", n)
    found: dict[str, Any] = {}
    with Host(setting.spec, geometry, {"wear_spread": "4"} if n % 2 else {"buffer": "3"}) as host:
        host.open()
        for life in ("fresh", "after a clean mount", "after a kill"):
            for _ in range(setting.some(400, 4_000)):
                host.anything(rnd, 20)
            host.flush()
            found |= {f"{life}: {name}": value for name, value in host.device.stats().items()}
            host.close(clean=life == "fresh")
            host.open()
        host.look("at the end")
        host.close()
        return {**found, "requests": host.requests, "image": host.image()[HEADERS:]}
