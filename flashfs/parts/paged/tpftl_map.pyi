from typing import Any

from flashfs.parts.paged.cache_map import CacheMap

class TpMap(CacheMap):
    def __init__(
        self,
        ssd: Any,
        cache_bytes: int,
        fixed: bool = False,
        *,
        request_level: bool = True,
        selective_level: bool = True,
    ) -> None: ...
    def resize(self, units: Any) -> Any: ...
    @property
    def cmt(self) -> Any: ...
    @property
    def prefetched(self) -> int: ...

UNITS_LEAST: int
UNIT_TAKES: int

def units_in(room: Any) -> Any: ...
