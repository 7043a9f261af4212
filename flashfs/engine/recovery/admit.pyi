from collections.abc import Iterable
from typing import Any

from flashfs.engine.device.ssd import Ssd

def admit(ssd: Ssd, log: Iterable[int], known: Any = True) -> None: ...
