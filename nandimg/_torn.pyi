from typing import Any

from _typeshed import ReadableBuffer

from nandimg._chip import Chip

def spoil(chip: Chip, block: int, page: int) -> None: ...
def overwrite(chip: Any, block: int, page: int, data: ReadableBuffer, oob: ReadableBuffer) -> Any: ...
