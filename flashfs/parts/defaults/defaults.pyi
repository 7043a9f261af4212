from typing import Any

from flashfs.engine.contract.cleaning import Cleaning

from flashfs.engine.contract.engine import Engine

from flashfs.engine.contract.mapping import Mapping

from flashfs.engine.contract.placement import Placement

from flashfs.engine.contract.validity import Validity
from nandimg import Geometry

class PageTable(Mapping):
    def __init__(self, ssd: Engine) -> None: ...

class PageBitmap(Validity):
    def __init__(self, ssd: Engine) -> None: ...
    @staticmethod
    def section_bytes(geometry: Geometry) -> dict[str, int]: ...

class Streams(Placement):
    def __init__(self, ssd: Engine, width_host: int, width_gc: int, stripe: int, pads: bool = False) -> None: ...
    @property
    def width_host(self) -> int: ...
    @property
    def width_gc(self) -> int: ...
    @property
    def stripe(self) -> int: ...
    def spread_map(self, width: int) -> Any: ...

class Greedy(Cleaning):
    def __init__(self, ssd: Engine) -> None: ...
