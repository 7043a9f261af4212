"""Cases over an image of before its pages had numbers."""

from __future__ import annotations

from typing import Any

import pytest

from flashfs.crash.bench import Bench


def without_page_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Bench.build

    def built(bench: Bench, options: dict[str, Any]) -> Any:
        ssd = build(bench, options)
        ssd.pool.numbers = False
        return ssd

    monkeypatch.setattr(Bench, "build", built)
