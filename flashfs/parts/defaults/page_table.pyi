from typing import Any

from flashfs.engine.contract.mapping import Mapping

class PageTable(Mapping):
    def __init__(self, ssd: Any, *_, **__) -> None: ...
    def named(self) -> Any: ...

TABLE: str
OLDER_TABLE: str
