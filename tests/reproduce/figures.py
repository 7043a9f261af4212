"""A figure to test with, and how one is written down."""

from __future__ import annotations

from pathlib import Path

from flashfs.reproduce import figure as files
from flashfs.reproduce.figure import Figure

TINY = """
title = "WAF"
source = "a paper, figure 1"
value = "waf / base.waf"
baseline = "pagemap"
y = "WAF / page map"
x = "Seed"
form = "lines"
substitute = "a generator"

[all]
preset = "small-64m"
precondition = "fill"

[all.opt]
buffer = 64

[small]
says = "a fourth"
source = "uniform:ops=8k"

[paper]
source = "uniform:ops=32k"

[[series]]
name = "pagemap"
ftl = "pagemap"

[[series]]
name = "slimftl"
ftl = "slimftl"

[[series]]
name = "not yet"
ftl = "nosuchftl"

[[at]]
name = 1
seed = 1

[[at]]
name = 2
seed = 2

[[expect]]
series = "pagemap"
x = "*"
mark = "A"
paper = 1
within = 0.001

[[expect]]
series = "slimftl"
x = "mean"
mark = "N"
at_least = 0.5

[[expect]]
series = ["not yet", "pagemap", "slimftl"]
mark = "S"
level = 0.5

[[expect]]
series = "not yet"
x = 1
mark = "P"
paper = 3
within = 0.05
"""


def written(tmp_path: Path, text: str = TINY, name: str = "tiny-1") -> Figure:
    folder = tmp_path / "figures"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(text)
    return files.load(folder / f"{name}.toml")
