"""The door to the engine: what schemes, servers and tools get of it; _core.pxd is the same for what is compiled.
flashfs.engine has the rooms behind it."""

from flashfs.engine.buffer import WriteBuffer
from flashfs.engine.cache import DataCache
from flashfs.engine.defaults import Greedy, PageBitmap, PageTable, Streams
from flashfs.engine.metalog import MetaLog
from flashfs.engine.mover import Mover
from flashfs.engine.parts import Cleaning, Engine, Mapping, Placement, Validity
from flashfs.engine.pool import BlockPool
from flashfs.engine.reader import Reader
from flashfs.engine.ssd import Ssd
from flashfs.engine.wear import WearLevel

__all__ = [
    "BlockPool", "Cleaning", "DataCache", "Engine", "Greedy", "Mapping", "MetaLog", "Mover", "PageBitmap", "PageTable",
    "Placement", "Reader", "Ssd", "Streams", "Validity", "WearLevel", "WriteBuffer",
]  # fmt: skip
