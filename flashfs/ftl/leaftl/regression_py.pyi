from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

PIECE: np.dtype[np.void]
OBJECTIVES: dict[str, int]

def fit(
    lpas: ArrayLike,
    ppas: ArrayLike,
    gamma: int = 0,
    *,
    group: int = 256,
    pages_per_block: int = 0,
    objective: str = "fewest",
) -> NDArray[Any]: ...
def predicted(slope: int, intercept: int, offset: int) -> int: ...
def stride(slope: int) -> int: ...
def half_to_float(half: int) -> float: ...
def float_to_half(value: float) -> int: ...
def float_to_half_floor(value: float) -> int: ...
