"""A page that cleaning moved for an LPA that never had it: its owner is looked for while another translation
page is about to be written."""

from __future__ import annotations

from pathlib import Path

import nandimg
from flashfs import inspect
from flashfs.device import Device
from flashfs.errors import UncorrectableError
from nandimg import Geometry, checksum

PAGE, PER_PAGE, PAGES = 512, 128, 16
CHIP = Geometry(page_bytes=PAGE, pages_per_block=PAGES, blocks=160, dies=1, oob_bytes=32, lpas=8 * PER_PAGE)


def says(path: Path, ppa: int, oob: bytes) -> None:
    """That page's spare area is another's."""
    layout = inspect.header(path)["layout"]
    at = layout["spare_at"] + ppa * layout["stride"]
    with path.open("r+b") as file:
        file.seek(at)
        record = bytearray(file.read(layout["stride"]))
        record[layout["record_head"] : layout["record_head"] + len(oob)] = oob
        summed = record[8 : layout["record_head"] + nandimg.inspect(path).oob_used]
        record[4:8] = checksum(ppa.to_bytes(4, "little") + record[:4] + summed).to_bytes(4, "little")
        file.seek(at)
        file.write(record)


def test_a_translation_page_is_written_with_its_own_entries(tmp_path: Path) -> None:
    path = tmp_path / "chip"
    nandimg.create(path, CHIP)
    device = Device.open(path, ftl="dftl", options={"buffer": "0", "stripe": "1", "cmt_bytes": "300", "battery": "0"})
    model = {}
    for place in range(PER_PAGE):           # pages of all eight translation pages lie side by side
        for page in range(CHIP.lpas // PER_PAGE):
            lpa = page * PER_PAGE + place
            model[lpa] = b"%08d" % lpa * (PAGE // 8)
            device.write(lpa * PAGE, model[lpa])
    device.flush()
    where = {}
    for block in range(CHIP.blocks):
        for page in device.ssd.validity.live_in(block):
            status, raw = device.nand.read_spare_area(block, page)
            spare = inspect.Spare.of(raw)
            if status == 1 and spare.kind == 1:
                where[spare.lpa] = block * PAGES + page
    block = where[10] // PAGES
    victim = next(lpa for lpa, ppa in where.items() if ppa // PAGES == block and lpa // PER_PAGE == 7)
    own = device.nand.read_spare_area(*divmod(where[victim], PAGES))[1]
    says(path, where[victim], own[:8] + (50).to_bytes(4, "little") + own[12:])
    assert device.ssd.move_blocks(memoryview(block.to_bytes(4, "little")).cast("I"))
    wrong = []
    for lpa, data in model.items():
        try:
            if device.read(lpa * PAGE, PAGE) != data:
                wrong.append(lpa)
        except UncorrectableError:
            wrong.append(lpa)
    assert wrong == [victim]
    device.close()
