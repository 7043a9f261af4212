from flashfs.engine.device.ssd import Ssd

class ZeroCopy:
    def __init__(self, ssd: Ssd) -> None: ...
