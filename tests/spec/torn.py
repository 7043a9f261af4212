"""Images as a power cut leaves them, in files; and where the reader and the device's own recovery disagree on one."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import reader

from flashfs.crash.cases import Case, parse_program
from flashfs.crash.grammar import Step
from flashfs.device import ENGINE_OOB, Device, build_ssd
from flashfs.engine.device import byte_requests
from flashfs.engine.recovery import recovery
from flashfs.ftl import scheme
from nandimg import Cut, FaultyNand, PowerCut, create, open_image


def leave(path: Path, case: Case, cuts: Sequence[Cut]) -> None:
    """Run the case's program on an image at ``path`` until the last cut. It is then as that cut left it, or as the
    program's last request did; the last cut may fall into the recovery after the first."""
    of = scheme(case.ftl)
    geometry = case.geometry
    need = ENGINE_OOB + of.oob_with(of.resolve(dict(case.options)))
    geometry = replace(geometry, oob_bytes=max(need, geometry.oob_bytes))
    create(path, geometry)
    options = {**dict(case.options), "buffer": max(0, int(dict(case.options).get("buffer", 2)))}
    for name in ("lanes", "virtual_blocks"):  # fixed as what the chip has of it, which need not be what was asked for
        options.pop(name, None)
    Device.open(path, ftl=case.ftl, options={name: str(value) for name, value in options.items()}).close(clean=False)
    image = open_image(path)
    try:
        nand = FaultyNand(image.chip, cuts, ())
        given = of.resolve({**options, **(image.header.options or {})})

        def mount() -> Any:
            ssd = build_ssd(of, dict(given), nand)
            recovery.Recovery(ssd).run()
            return ssd

        left = len(cuts)
        ssd: Any = None
        steps = list(parse_program(case.program))
        while steps or ssd is None:
            try:
                ssd = ssd or mount()
                while steps:
                    step = steps.pop(0)
                    ssd = _step(ssd, mount, step, geometry.page_bytes)
            except PowerCut:
                left -= 1
                if left == 0:
                    return
                nand.power_on()
                ssd = None
    finally:
        image.close()


def _step(ssd: Any, mount: Any, step: Step, page: int) -> Any:
    operation, lpa, n = step.operation, step.lpa, step.n
    if operation in ("p", "m"):
        for offset, size in step.spans(page):
            try:
                byte_requests.remap_range(ssd, offset, step.target(page), size, operation == "m")
            except OSError as error:       # one that is to be atomic is refused, or done
                if error.errno != errno.EOPNOTSUPP:
                    raise
    elif operation == "e":
        for offset, size in step.spans(page):
            held = bytearray(size)
            byte_requests.read_range(ssd, offset, held)
            byte_requests.write_range(ssd, step.target(page), bytes(held))
    elif operation == "w":  # the sequence number tells one version from another
        data = b"".join(struct.pack("<QQ", x, ssd.seq) * (page // 16) for x in range(lpa, lpa + n))
        byte_requests.write_range(ssd, lpa * page, data)
    elif operation == "t":
        ssd.trim_pages(lpa, n)
    elif operation == "f":
        ssd.sync_now()
    elif operation == "r":
        ssd.sync_now()
        ssd.checkpoint(True)
        return mount()
    return ssd


def disagreements(path: Path) -> list[str]:
    """Lines about every page on which the two differ, and what fsck says."""
    spec = reader.Image(path)
    current = spec.current()
    hole = bytes(spec.page_bytes)
    device = Device.open(path, readonly=True)
    try:
        out = device.problems()
        live = {
            block * spec.pages_per_block + page
            for block in range(spec.blocks)
            for page in device.ssd.validity.live_in(block)
        }
        mine = {page.ppa for page in current.values()}
        if live != mine:
            out.append(
                f"live pages: {sorted(live - mine)} by the device alone, {sorted(mine - live)} by the reader alone"
            )
        for lpa in range(spec.lpas):
            expected = current[lpa].data if lpa in current else hole
            if device.read(lpa * spec.page_bytes, spec.page_bytes) != expected:
                out.append(f"LPA {lpa}: contents differ")
        return out
    finally:
        device.close(clean=False)
