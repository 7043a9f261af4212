"""Draw the diagrams of docs/diagrams.md: docs/img/diagram-NAME.svg, for slides and for readers without a network.

    npm pack mermaid && tar xzf mermaid-*.tgz package/dist/mermaid.min.js
    python tools/diagrams.py package/dist/mermaid.min.js

A headless browser draws them with that copy of mermaid; nothing is fetched. Each picture ends with a comment
that has the SHA-256 of its source: tests/site/test_diagrams.py compares it to the page.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
from browser import Browser  # noqa: E402

PAGE = HERE.parent / "docs/diagrams.md"
OUT = HERE.parent / "docs/img"
BLOCK = re.compile(r"^## A (\w+)$.*?^```mermaid\n(.*?)^```$", re.M | re.S)
MOST_S = 30.0  #: of wall time, for one diagram
#: labels as SVG text: only browsers show HTML labels
FLOWS = {"htmlLabels": False, "wrappingWidth": 340, "rankSpacing": 30}
SETTINGS = {"startOnLoad": False, "htmlLabels": False, "flowchart": FLOWS, "theme": "neutral",
            "fontFamily": "sans-serif", "deterministicIds": True}  # fmt: skip
HTML = """<!doctype html><meta charset="utf-8"><body><script src="{library}"></script><script>
mermaid.initialize({settings});
mermaid.render("diagram", {source}).then(one => window.drawn = one.svg, error => window.drawn = "error: " + error);
</script></body>"""


def diagrams() -> dict[str, str]:
    """{the name of its section: the source of its diagram}, in the order of the page."""
    return dict(BLOCK.findall(PAGE.read_text()))


def mark(source: str) -> str:
    """The comment at a picture's end: the SHA-256 of its source."""
    return f"<!-- of {hashlib.sha256(source.encode()).hexdigest()} -->"


def picture(name: str) -> Path:
    return OUT / f"diagram-{name}.svg"


def draw(library: Path, source: str) -> str:
    """The diagram as SVG. ValueError if mermaid does not take it."""
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder, "page.html")
        page.write_text(HTML.format(library=library.resolve().as_uri(), settings=json.dumps(SETTINGS),
                                    source=json.dumps(source)))  # fmt: skip
        browser.open(page)
        end = time.monotonic() + MOST_S
        while not (drawn := browser.see("window.drawn || ''")):
            if time.monotonic() > end:
                raise ValueError(f"mermaid did not draw it within {MOST_S:.0f} s")
            time.sleep(0.05)
    if drawn.startswith("error: "):
        raise ValueError(drawn)
    return str(drawn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, metavar="MERMAID_JS", help="mermaid.min.js of mermaid 11")
    library = parser.parse_args().library
    for name, source in diagrams().items():
        picture(name).write_text(f"{draw(library, source)}\n{mark(source)}\n")
        print(picture(name).relative_to(HERE.parent))


if __name__ == "__main__":
    main()
