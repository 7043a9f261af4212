from flashfs.engine.device.buffer import WriteBuffer
from flashfs.engine.device.durable import Durable

class Writer(Durable):
    @property
    def buffer(self) -> WriteBuffer: ...
