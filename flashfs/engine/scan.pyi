class Scanner:
    figures: dict[str, int]
    alarms: list[str]
    def alarm(self, text: str) -> None: ...
