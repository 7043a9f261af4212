from typing import Any

from flashfs.engine.device.wear import WearLevel

class WearScan(WearLevel):
    def __init__(self, ssd: Any, spread: int, reads: int) -> None: ...
    @property
    def reads(self) -> int: ...
    @property
    def rounds(self) -> int: ...
