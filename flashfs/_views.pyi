from flashfs._core import Ssd

class Views:
    def __init__(self, ssd: Ssd) -> None: ...
