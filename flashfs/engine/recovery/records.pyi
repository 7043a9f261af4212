from flashfs.engine.recovery.scan import Scanner

class RecordTaker(Scanner):
    def claims(self) -> str: ...
