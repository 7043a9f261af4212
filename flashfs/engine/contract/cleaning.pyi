
from flashfs.engine.contract.engine import Engine

class Cleaning:
    @property
    def ssd(self) -> Engine: ...
    @property
    def open_blocks_rest(self) -> bool: ...
