"""A source as text: where its statements begin and end, which Cython's tree does not have."""

from __future__ import annotations

import io
import tokenize
from bisect import bisect_right
from dataclasses import dataclass

Place = tuple[int, int]  #: line from 1, column from 0

_HEADS = {"if", "elif", "else", "while", "for", "try", "except", "finally", "with", "def", "cdef", "cpdef", "class"}
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, slots=True)
class Word:
    """A token: its text, where it begins and ends, how many brackets are open around it."""

    text: str
    start: Place
    end: Place
    depth: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A simple statement, or the head of a compound one without its colon."""

    words: tuple[Word, ...]

    @property
    def start(self) -> Place:
        return self.words[0].start

    @property
    def end(self) -> Place:
        return self.words[-1].end


class Text:
    """One source, cut into statements."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        self.statements = list(_statements(source))
        self._starts = [statement.start for statement in self.statements]

    def at(self, place: Place) -> Statement:
        """The statement that ``place`` is in."""
        return self.statements[max(0, bisect_right(self._starts, place) - 1)]

    def between(self, start: Place, end: Place) -> str:
        """The text from ``start`` to ``end``, in one line."""
        if start[0] == end[0]:
            return self.lines[start[0] - 1][start[1] : end[1]]
        first, last = self.lines[start[0] - 1][start[1] :], self.lines[end[0] - 1][: end[1]]
        return " ".join(part.strip() for part in [first, *self.lines[start[0] : end[0] - 1], last])

    def whole(self, statement: Statement) -> str:
        return self.between(statement.start, statement.end)

    def mutated(self, kind: str, start: Place, before: str, after: str) -> list[str]:
        """All lines, with the change of a mutant of that kind at ``start``."""
        if kind == "condition":
            end = self.condition(start)[1]
        elif kind == "drop":
            end = self.at(start).end
        else:
            line = self.lines[start[0] - 1]
            assert line[start[1] :].startswith(before), f"line {start[0]}: there is no {before!r}"
            end = (start[0], start[1] + len(before))
        first, last = start[0] - 1, end[0] - 1
        line = self.lines[first][: start[1]] + (after or "pass") + self.lines[last][end[1] :]
        return [*self.lines[:first], line, *self.lines[last + 1 :]]

    def condition(self, place: Place) -> tuple[Place, Place]:
        """The span of the condition that begins at ``place``, or whose `if` or `while` does, or, in
        `x if condition else y`, whose x does."""
        words = self.at(place).words
        here = next(i for i, word in enumerate(words) if word.start >= place)
        depth = words[here].depth
        if here and words[here - 1].text in ("if", "elif"):
            first = here
        elif words[here].text in ("if", "while"):
            first = here + 1
        else:
            first = 1 + next(i for i in range(here, len(words)) if words[i].text == "if" and words[i].depth == depth)
        last = first
        while last < len(words) and not (words[last].depth < depth or _ends(words[last], depth)):
            last += 1
        return words[first].start, words[last - 1].end


def _ends(word: Word, depth: int) -> bool:
    return word.depth == depth and word.text in ("else", "for", "if", ",")


def _statements(source: str) -> list[Statement]:
    found, words, depth = [], list[Word](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _SILENT or not (token.string.strip() or token.type == tokenize.NEWLINE):
            continue
        if token.string in ")]}":
            depth -= 1
        colon = token.string == ":" and depth == 0 and bool(words) and words[0].text in _HEADS
        if token.type == tokenize.NEWLINE or (token.string == ";" and depth == 0) or colon:
            if words:
                found.append(Statement(tuple(words)))
            words = []
            continue
        words.append(Word(token.string, token.start, token.end, depth))
        if token.string in "([{":
            depth += 1
    return found
