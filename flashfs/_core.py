"""The entry to the engine: the names that schemes, servers and tools import. _core.pxd is the same for cimports; the
code is in flashfs.engine."""

from flashfs.engine.blocks.pool import BlockPool
from flashfs.engine.contract.cleaning import Cleaning
from flashfs.engine.contract.engine import Engine
from flashfs.engine.contract.mapping import Mapping
from flashfs.engine.contract.owner import Owner
from flashfs.engine.contract.placement import Placement
from flashfs.engine.contract.validity import Validity
from flashfs.engine.device.buffer import WriteBuffer
from flashfs.engine.device.cache import DataCache
from flashfs.engine.device.metalog import MetaLog
from flashfs.engine.device.mover import Mover
from flashfs.engine.device.reader import Reader
from flashfs.engine.device.ssd import Ssd
from flashfs.engine.device.wear import WearLevel
from flashfs.parts.defaults.greedy import Greedy
from flashfs.parts.defaults.page_bitmap import PageBitmap
from flashfs.parts.defaults.page_table import PageTable
from flashfs.parts.defaults.streams import Streams

__all__ = [
    "BlockPool", "Cleaning", "DataCache", "Engine", "Greedy", "Mapping", "MetaLog", "Mover", "Owner", "PageBitmap",
    "PageTable", "Placement", "Reader", "Ssd", "Streams", "Validity", "WearLevel", "WriteBuffer",
]  # fmt: skip
