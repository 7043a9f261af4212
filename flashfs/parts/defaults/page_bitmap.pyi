from typing import Any

from flashfs.engine.contract.validity import Validity

class PageBitmap(Validity):
    def __init__(self, ssd: Any) -> None: ...
    @staticmethod
    def section_bytes(geometry: Any) -> Any: ...
