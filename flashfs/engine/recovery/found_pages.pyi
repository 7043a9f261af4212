from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = tuple[int, int, int, int]

class FoundPages:
    def __init__(self, pages_per_block: int, memory_most: int = ...) -> None: ...
    def number(self) -> Any: ...

def in_order(
    rows: Iterable[Row], orders: NDArray[np.uint64], pages_per_block: int, keys: int, memory_most: int = ...
) -> list[Row]: ...
