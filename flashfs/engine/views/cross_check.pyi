from collections.abc import Callable
from typing import Any

from flashfs.engine.device.ssd import Ssd

def cross_check(ssd: Ssd, most: int = 100, progress: Callable[[float], None] | None = None) -> list[str]: ...
def named_bits(ssd: Any) -> Any: ...
