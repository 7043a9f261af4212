"""Builds the docs site from the repository: a hook of mkdocs (mkdocs.yml), and the program that `make site` runs.

    python tools/docs_site.py [DIR]     # into site/; exit code 1, and a line each, if a link leads nowhere

The site has the layout of the repository, README.md at its root and docs/ below, so that links between Markdown
files work in the site as in the repository. Linked files that are no Markdown (an example, a script) are shown as
text; a notebook can be downloaded. The pages on the Python names and on FTLs in
Python get a reference from docstrings.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
AT_ROOT = ("README.md", "SPEC.md", "CONTRIBUTING.md", "tests/README.md", "CHANGELOG.md")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
AS_THEY_ARE = (".md", ".svg", ".png", ".ipynb")
NAMED = re.compile(r"^```(\w+) file=(\S+)$", re.M)  #: a block that is the file of that name
#: a block with words for the tests; the site's Markdown takes such a block for text
WORDS = re.compile(r"^```(\w+) [^=\n]+$", re.M)
API_PAGE = "docs/python-api.md"
#: room for lines of 112 characters in a window of 1280 pixels
WIDE = """.md-grid { max-width: 82rem; }
.md-typeset pre > code, .md-typeset table:not([class]) { font-size: 0.65rem; }
.md-main__inner .md-content__inner { margin: 0 0.8rem; }
@media screen and (min-width: 76.25em) { .md-sidebar { width: 10.5rem; } }
"""
#: the methods for programs; mounts and replays call the others
OF_DEVICE = """flashfs.Device
    options: { filters: ["!^_", "!^(try_bind|start|recover|interpreted|read_into|fileno|extent|stay_pageable|give_back|\
leave|forget_counts|fail_if_lost)$"] }"""
REFERENCE = "\n\n## Reference\n\n"
#: `replay` is also a package, so its function has another name here
API = (
    "flashfs.create", "flashfs.open", "flashfs.mount", "flashfs.replay.api.replay", "flashfs.compare", "flashfs.sweep",
    "flashfs.plot", "flashfs.read_trace", "flashfs.check.api.check", "flashfs.crash.api.crash", "flashfs.clone",
    "flashfs.dump", "flashfs.fsck", OF_DEVICE, "flashfs.Mount", "flashfs.Picture",
    "nandimg.geometry.Geometry", "flashfs.FlashfsError", "flashfs.UsageError",
)  # fmt: skip
FTL_PAGE = "docs/python-ftl.md"
#: compiled, with no docstrings in its stub, so it is imported
CHIP = """::: flashfs.parts.python.python_ftl.Chip
    options: { force_inspection: true, show_if_no_docstring: true }
"""
OF_FTLS = ("Ftl", "Saves", "Stamps", "Guesses", "Validates", "Places", "Cleans", "Shares", "LearnsRuns")


def on_config(config: Any) -> Any:
    """Replaces FOLDER/* in the navigation by the folder's pages that it names nowhere else, sorted by name."""
    named = set(named_pages(config.nav))
    for part in config.nav:
        for pages in part.values():
            for at, page in reversed(list(enumerate(pages)) if isinstance(pages, list) else []):
                if isinstance(page, str) and page.endswith("/*"):
                    pages[at : at + 1] = [one for one in pages_of(page[:-2]) if one not in named]
    return config


def named_pages(nav: Any) -> Iterator[str]:
    """Each page that a part of the navigation names."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from named_pages(part)


def pages_of(folder: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / folder).glob("*.md"))]


def on_files(files: Files, config: Any) -> Files:
    """Every page at its path in the repository, and the files that pages link to."""
    out = Files([file for file in files if not in_docs(file)])
    pages = [ROOT / name for name in AT_ROOT] + sorted((ROOT / "docs").rglob("*.md"))
    linked: set[Path] = set()
    for page in pages:
        out.append(added(config, page))
        for link in LINK.findall(FENCED.sub("", page.read_text())):
            target = Path(posixpath.normpath(page.parent / link))
            if target.is_file() and target not in pages and target.is_relative_to(ROOT):
                linked.add(target)
    out.append(File.generated(config, "assets/wide.css", content=WIDE))
    for target in sorted(linked):
        file = added(config, target)
        file.inclusion = InclusionLevel.NOT_IN_NAV
        if target.suffix not in AS_THEY_ARE:
            file.dest_uri += ".txt"  # browsers show .txt, whatever the server makes of other suffixes
        out.append(file)
    return out


def in_docs(file: File) -> bool:
    return Path(file.abs_src_path or "").is_relative_to(ROOT / "docs")


def added(config: Any, path: Path) -> File:
    file = File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
    file.inclusion = InclusionLevel.INCLUDED
    return file


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Appends the reference to the page's own text."""
    markdown = WORDS.sub(r"```\1", NAMED.sub(r'```\1 title="\2"', markdown))
    if page.file.src_uri == API_PAGE:
        return f"{markdown}{REFERENCE}{entries(API)}\n"
    if page.file.src_uri == FTL_PAGE:
        protocols = entries(f"flashfs.ftl.python.{name}" for name in OF_FTLS)
        return f"{markdown}{REFERENCE}{protocols}\n\n::: flashfs.ftl.Option\n\n{CHIP}"
    return markdown


def entries(names: Iterable[str]) -> str:
    return "\n\n".join(f"::: {name}" for name in names)


# --- the links of what was built


class Links(HTMLParser):
    """The links of one page, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.sources: list[str] = []  #: what a browser fetches by itself
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
                if name == "src" or tag == "link":
                    self.sources.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def broken(site: Path) -> list[str]:
    """A line for each link of a page of the site that leads nowhere in it. External links are not followed; 404.html
    is skipped, because its links are relative to other pages."""
    pages = {path: Links(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    out = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = Path(posixpath.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if not target.is_file():
                out.append(f"{path.relative_to(site)}: {link}: no such file")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                out.append(f"{path.relative_to(site)}: {link}: no such place in that page")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "site", metavar="DIR")
    folder = parser.parse_args().folder.absolute()
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(folder)], cwd=ROOT,
        capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    if built.returncode:
        print(built.stderr, file=sys.stderr)
        return 1
    lines = broken(folder)
    print(*lines, sep="\n", end="\n" if lines else "")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
