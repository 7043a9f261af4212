"""Pages in the wrong place of an image."""

from __future__ import annotations

from pathlib import Path

import nandimg
from flashfs import inspect
from nandimg._chip import checksum, page_checksum


def put(path: Path, ppa: int, data: bytes | None = None, oob: bytes | None = None) -> None:
    """Another page's bytes, as a chip that errs in its addresses would leave them: whole, but in the wrong place."""
    layout = inspect.header(path)["layout"]
    at = layout["spare_at"] + ppa * layout["stride"]
    with path.open("r+b") as file:
        file.seek(at)
        record = bytearray(file.read(layout["stride"]))
        if data is not None:
            record[8:12] = page_checksum(data).to_bytes(4, "little")
            file.seek(layout["data_at"] + ppa * nandimg.inspect(path).geometry.page_bytes)
            file.write(data)
        if oob is not None:
            record[layout["record_head"] : layout["record_head"] + len(oob)] = oob
        summed = record[8 : layout["record_head"] + nandimg.inspect(path).oob_used]
        record[4:8] = checksum(ppa.to_bytes(4, "little") + record[:4] + summed).to_bytes(4, "little")
        file.seek(at)
        file.write(record)
