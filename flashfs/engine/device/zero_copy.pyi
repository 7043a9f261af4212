from flashfs.engine.device.ssd import Ssd

class Views:
    def __init__(self, ssd: Ssd) -> None: ...
