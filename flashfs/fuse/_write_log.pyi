from flashfs.replay._record import Recorder

MARK: int

class TapeWriter(Recorder):
    error_number: int
    written: int

    def __init__(self, size_bytes: int, file: int) -> None: ...
    def note_mark(self, word: bytes) -> None: ...
