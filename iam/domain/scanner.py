"""Reads policy text before the engine does: sizes, nesting, operators, where each statement stands (IAM-API §9).

The engine recurses over what it reads and ends the process when its stack is full, so nothing over the limits here may
reach it. Words are cut exactly as the engine cuts them: what is a comment or a string here must be one there. Where the
two could differ (other white space than ASCII's, characters outside strings that no word has), the text is refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from iam.errors import TextIssue

MAX_BYTES = 16_384
MAX_STATEMENTS = 64
MAX_STATEMENT_BYTES = 4_096
MAX_NESTING = 32
MAX_OPERATORS = 200
MAX_ID = 128

_WORD = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+)
      | (?P<comment>//[^\r\n]*)
      | (?P<string>"(?:\\[^\r\n]|[^"\\])*")
      | (?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
      | (?P<number>[0-9]+)
      | (?P<sign>::|&&|\|\||==|!=|<=|>=|[-!<>+*.,;:@?()\[\]{}%/=|])""",
    re.VERBOSE,
)
_OPERATORS = frozenset({"&&", "||", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "!", ".", "in", "is"})
_OPERATORS |= {"has", "like"}
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|x([0-7][0-9a-fA-F])|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Word:
    """A word of the text: a string, a name, a number or a sign, with the place of its first character."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Statement:
    """One statement: its id (given, or ``s<n>`` by place), effect, words, and where they begin and end.

    ``bad_id``: an id was given that cannot be stored; ``id`` is then that of the place.
    """

    id: str
    effect: str
    words: tuple[Word, ...] = field(repr=False)
    start: int
    end: int
    bad_id: bool = False


@dataclass(frozen=True)
class Scanned:
    """A text cut into statements. With ``issues`` it must not reach the engine."""

    text: str = field(repr=False)
    statements: tuple[Statement, ...]
    issues: tuple[TextIssue, ...]

    @property
    def size(self) -> int:
        """How many words the text has: what it costs to keep it parsed and to evaluate it."""
        return sum(len(statement.words) for statement in self.statements)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, both counted from 1."""
        return _place(self.text, offset)

    def source(self, statement: Statement) -> str:
        """The text of one statement."""
        return self.text[statement.start : statement.end]


def scan(text: str) -> Scanned:
    """Cut the text into statements and hold it against the limits."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_BYTES:
        return Scanned(text, (), (TextIssue("text", f"must have 1 to {MAX_BYTES} bytes, not {size}", 1, 1),))
    words, issue = cut(text)
    if issue:
        return Scanned(text, (), (issue,))
    issues: list[TextIssue] = []
    statements = []
    for number, group in enumerate(_groups(words), start=1):
        statement = _statement(group, number)
        statements.append(statement)
        issues += _faults(text, statement)
    if not 1 <= len(statements) <= MAX_STATEMENTS:
        counted = f"must have 1 to {MAX_STATEMENTS} statements, not {len(statements)}"
        issues.append(TextIssue("text", counted, 1, 1))
    issues += _repeated(text, statements)
    return Scanned(text, tuple(statements), tuple(issues))


def _place(text: str, offset: int) -> tuple[int, int]:
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def cut(text: str) -> tuple[list[Word], TextIssue | None]:
    """The words of the text up to the first thing that is none."""
    words: list[Word] = []
    if surrogate := _SURROGATE.search(text):
        return words, TextIssue("text", "a lone surrogate is not a character", *_place(text, surrogate.start()))
    offset = 0
    while offset < len(text):
        match = _WORD.match(text, offset)
        if match is None:
            what = "the string is not closed" if text[offset] == '"' else f"unexpected character {text[offset]!a}"
            return words, TextIssue("text", what, *_place(text, offset))
        kind = match.lastgroup or ""
        if kind not in ("space", "comment"):
            words.append(Word(kind, match[0], offset))
        offset = match.end()
    return words, None


def _groups(words: list[Word]) -> Iterator[list[Word]]:
    """The words of each statement, its semicolon included; the last may lack one."""
    group: list[Word] = []
    for word in words:
        group.append(word)
        if word.text == ";":
            yield group
            group = []
    if group:
        yield group


def _statement(words: list[Word], number: int) -> Statement:
    """Annotations are a name each and perhaps a string in brackets; anything else is for the parser to refuse."""
    texts = [word.text for word in words]
    identifier, at = "", 0
    while texts[at : at + 1] == ["@"]:
        has_value = texts[at + 2 : at + 3] == ["("] and texts[at + 4 : at + 5] == [")"]
        if has_value and texts[at + 1] == "id" and words[at + 3].kind == "string":
            identifier = unescape(texts[at + 3])
        at += 5 if has_value else 2
    effect = texts[at] if texts[at : at + 1] in (["permit"], ["forbid"]) else ""
    bad = len(identifier) > MAX_ID or bool(_CONTROLS.search(identifier))
    name = f"s{number}" if bad or not identifier else identifier
    return Statement(name, effect, tuple(words), words[0].start, words[-1].end, bad)


def unescape(literal: str) -> str:
    """The value of a string literal; an escape that the engine will refuse stays as it is."""

    def value(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        if code:
            number = int(code, 16)
            return chr(number) if number <= 0x10FFFF else match[0]
        return _ESCAPED.get(match[3], match[3])

    return _ESCAPE.sub(value, literal[1:-1])


def _faults(text: str, statement: Statement) -> Iterator[TextIssue]:
    def issue(message: str, offset: int) -> TextIssue:
        return TextIssue("text", message, *_place(text, offset), statement=statement.id)

    size = len(text[statement.start : statement.end].encode())
    if size > MAX_STATEMENT_BYTES:
        yield issue(f"the statement has {size} bytes, over {MAX_STATEMENT_BYTES}", statement.start)
    if statement.bad_id:
        yield issue(f"the id must have 1 to {MAX_ID} characters without controls", statement.start)
    operators = list(_operators(statement.words))
    if len(operators) > MAX_OPERATORS:
        counted = f"the statement has {len(operators)} operators, over {MAX_OPERATORS}"
        yield issue(counted, operators[MAX_OPERATORS].start)
    template = next((word for word in statement.words if word.text == "?"), None)
    if template:
        yield issue("templates (`?principal`, `?resource`) are not supported", template.start)
    yield from _nesting(statement, issue)


def _operators(words: tuple[Word, ...]) -> Iterator[Word]:
    """Signs and words that join or turn values; a bracket straight after a value, as in ``a["b"]``, is one too."""
    for at, word in enumerate(words):
        if word.text in _OPERATORS:
            yield word
        elif word.text == "[" and at > 0:
            before, label = words[at - 1], at > 1 and words[at - 2].text == "."
            is_value = before.kind in ("name", "string") or before.text in _CLOSING
            if is_value and (label or before.text not in ("in", "if", "then", "else")):
                yield word


def _nesting(statement: Statement, issue: Callable[[str, int], TextIssue]) -> Iterator[TextIssue]:
    levels = _Levels()
    words = statement.words
    for word, before, after in zip(words, (None, *words), (*words[1:], None), strict=False):
        fault = levels.take(word, before, after)
        if fault is None and levels.depth > MAX_NESTING:
            fault = f"nested deeper than {MAX_NESTING} levels"
        if fault:
            yield issue(fault, word.start)
            return
    if words[-1].text != ";":
        yield issue("the statement does not end with `;`", words[-1].start)


class _Levels:
    """How deep a word stands: one level for each open bracket and each ``if`` whose last branch has not ended.

    An ``if`` ends where a word comes that belongs to one further out: the bracket around it, a comma, the ``then`` or
    ``else`` of an outer one.
    """

    def __init__(self) -> None:
        self._open: list[str] = []

    @property
    def depth(self) -> int:
        return len(self._open)

    def take(self, word: Word, before: Word | None, after: Word | None) -> str | None:
        """Step over a word; what is wrong with it, if anything."""
        if word.kind == "name":
            if not _is_label(before, after):
                self._branch(word.text)
        elif word.text in _OPENING:
            self._open.append(word.text)
        elif word.text in _CLOSING or word.text == ",":
            self._end_ifs()
            if word.text != ",":
                return self._close(word.text)
        elif word.text == ";":
            self._end_ifs()
            if self._open:
                return f"`;` inside an open `{self._open[-1]}`"
        return None

    def _branch(self, name: str) -> None:
        if name == "if":
            self._open.append("if")
        elif name in ("then", "else"):
            before = "if" if name == "then" else "then"
            at = len(self._open) - 1
            while at >= 0 and self._open[at] == "else":
                at -= 1
            if at >= 0 and self._open[at] == before:
                self._open[at:] = [name]

    def _end_ifs(self) -> None:
        while self._open and self._open[-1] not in _OPENING:
            self._open.pop()

    def _close(self, sign: str) -> str | None:
        if not self._open or _OPENING[self._open[-1]] != sign:
            return f"unexpected token `{sign}`"
        self._open.pop()
        return None


def _is_label(before: Word | None, after: Word | None) -> bool:
    """Whether a name stands where no expression can: after a dot, as a member of a record, as part of a path."""
    return (before is not None and before.text in (".", "::", "@", "has")) or (
        after is not None and after.text in (":", "::")
    )


def _repeated(text: str, statements: Iterable[Statement]) -> Iterator[TextIssue]:
    seen: set[str] = set()
    for statement in statements:
        if statement.id in seen:
            message = f"two statements have the id `{statement.id}`"
            yield TextIssue("text", message, *_place(text, statement.start), statement=statement.id)
        seen.add(statement.id)
