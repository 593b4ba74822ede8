"""What policy text may look like before the engine sees it (IAM-API §9)."""

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iam.domain.scanner import MAX_BYTES, MAX_NESTING, MAX_OPERATORS, MAX_STATEMENT_BYTES, MAX_STATEMENTS, cut, scan

PERMIT = "permit (principal, action, resource);"


def when(condition: str) -> str:
    return f"permit (principal, action, resource) when {{ {condition} }};"


def issues(text: str) -> list[tuple[str, int | None, int | None]]:
    return [(issue.message, issue.line, issue.column) for issue in scan(text).issues]


def test_statements_have_ids_effects_and_places() -> None:
    text = f'// first\n@id("own") @note("x")\n{PERMIT}\n  forbid (principal, action, resource);'
    found = scan(text)
    assert found.issues == ()
    assert [(s.id, s.effect, found.place(s.start)) for s in found.statements] == [
        ("own", "permit", (2, 1)),
        ("s2", "forbid", (4, 3)),
    ]
    assert found.source(found.statements[1]) == "forbid (principal, action, resource);"


def test_semicolons_in_strings_and_comments_end_nothing() -> None:
    found = scan(when(r'"a;\";" == "b" // ; }').replace("// ; }", "// ; }\n"))
    assert found.issues == ()
    assert len(found.statements) == 1


@pytest.mark.parametrize("ending", ["\r", "\n", "\r\n"])
def test_a_comment_ends_at_a_carriage_return_too(ending: str) -> None:
    # As in the engine: otherwise code could hide from the limits behind one.
    deep = "(" * 40 + "true" + ")" * 40
    assert "nested" in issues(f"// comment{ending}{when(deep)}")[0][0]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("x" * 0, False),
        ("//" + "x" * (MAX_BYTES - 2 - len(PERMIT) - 1) + "\n" + PERMIT, True),
        ("//" + "x" * (MAX_BYTES - 2 - len(PERMIT)) + "\n" + PERMIT, False),
        ("//" + "é" * (MAX_BYTES // 2) + "\n" + PERMIT, False),
        (PERMIT * MAX_STATEMENTS, True),
        (PERMIT * (MAX_STATEMENTS + 1), False),
        ("// nothing", False),
        (when('"' + "x" * (MAX_STATEMENT_BYTES - len(when('""'))) + '"'), True),
        (when('"' + "x" * (MAX_STATEMENT_BYTES - len(when('""')) + 1) + '"'), False),
        (when("true" + " && true" * MAX_OPERATORS), True),
        (when("true" + " && true" * (MAX_OPERATORS + 1)), False),
        (when("context" + '["a"]' * MAX_OPERATORS), True),
        (when("context" + '["a"]' * (MAX_OPERATORS + 1)), False),
        (when("context.in" + '["a"]' * MAX_OPERATORS), False),
        (when("(" * (MAX_NESTING - 1) + "true" + ")" * (MAX_NESTING - 1)), True),
        (when("(" * MAX_NESTING + "true" + ")" * MAX_NESTING), False),
        (when("[" * MAX_NESTING + "1" + "]" * MAX_NESTING), False),
        (when("{a:" * MAX_NESTING + "1" + "}" * MAX_NESTING), False),
        (when("if true then true else " * (MAX_NESTING - 1) + "true"), True),
        (when("if true then true else " * MAX_NESTING + "true"), False),
        (when("if " * MAX_NESTING + "true" + " then true else true" * MAX_NESTING), False),
        (when("(if true then true else true) && " * 60 + "true"), True),
        (when("[if true then 1 else 2, " + "if true then 1 else 2, " * 60 + "1] == [1]"), True),
        # Members that are called like the words of an `if` end none.
        (when("if {then: 1, else: 2}.then == 1 then true else " * MAX_NESTING + "true"), False),
        (when("if x.then.else.then == 1 then y.else.then else " * MAX_NESTING + "true"), False),
    ],
)
def test_limits(text: str, fits: bool) -> None:
    assert (scan(text).issues == ()) is fits


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        (PERMIT + "\n" + when("(1"), "unexpected token `}`", 2, 48),
        (PERMIT + "\n  permit (principal", "does not end with `;`", 2, 11),
        ("permit (principal;", "`;` inside an open `(`", 1, 18),
        (when('"abc'), "the string is not closed", 1, 45),
        ("\n é", "unexpected character '\\xe9'", 2, 2),
        ("permit (principal == ?principal, action, resource);", "templates", 1, 22),
        (f'@id("a") {PERMIT}\n@id("a") {PERMIT}', "two statements have the id `a`", 2, 1),
        (f'@id("s2") {PERMIT}\n{PERMIT}', "two statements have the id `s2`", 2, 1),
        (f'@id("a\\0b") {PERMIT}', "the id must have", 1, 1),
        (f'@id("\\u{{d800}}") {PERMIT}', "the id must have", 1, 1),
        (f'@id("{"x" * 129}") {PERMIT}', "the id must have", 1, 1),
        (PERMIT + " \ud800", "lone surrogate", 1, 39),
    ],
)
def test_faults_have_places(text: str, message: str, line: int, column: int) -> None:
    found = issues(text)
    assert [(message in words, at, in_line) for words, at, in_line in found] == [(True, line, column)]


WORDS = st.sampled_from(
    [
        *("permit", "forbid", "when", "unless", "principal", "action", "resource", "context", "if", "then", "else"),
        *("in", "is", "has", "like", "==", "&&", "||", "!", "-", "+", "*", "<", ".", ",", ";", ":", "::", "@", "?"),
        *("(", ")", "[", "]", "{", "}", '"x"', '"', "\\", "//", "\n", "\r", " ", "1", "id", "é", "\ud800", "\0"),
        *("(" * 9, "[" * 9, "if " * 9, "!" * 9, "true && " * 30, '["a"]' * 30, PERMIT),
    ]
)


def depth_of(words: list[str]) -> int:
    deepest = depth = 0
    for word in words:
        depth += (word in "([{") - (word in ")]}")
        deepest = max(deepest, depth)
    return deepest


@given(st.lists(WORDS, max_size=200).map(" ".join) | st.text(max_size=300))
@example("permit (principal, action, resource) when { " + "(" * 200)
def test_nothing_over_the_limits_comes_through(text: str) -> None:
    found = scan(text)
    if found.issues:
        return
    assert 1 <= len(text.encode()) <= MAX_BYTES
    assert 1 <= len(found.statements) <= MAX_STATEMENTS
    assert len({statement.id for statement in found.statements}) == len(found.statements)
    for statement in found.statements:
        assert len(found.source(statement).encode()) <= MAX_STATEMENT_BYTES
        texts = [word.text for word in statement.words]
        assert depth_of(texts) <= MAX_NESTING
        assert sum(text in ("&&", "||", "!", "-", "+", "==", ".", "in", "is", "has") for text in texts) <= MAX_OPERATORS
        assert "?" not in texts


@given(st.lists(WORDS, max_size=60).map(" ".join))
def test_words_are_where_they_say(text: str) -> None:
    words, _ = cut(text)
    assert all(text[word.start : word.end] == word.text for word in words)


# Every kind of text that makes the engine recurse, as far as the scanner lets it, and random ones: in a process of its
# own, in a thread with the smallest stack that is promised. An overflow would end the process with a signal.
HOSTILE = """
import os, random, threading
import django
django.setup()
from iam.adapters import cedar
from iam.adapters.validation import check_text
from iam.domain.review import mentions, permits_everybody, rights_given_away

def when(condition):
    return f"permit (principal, action, resource) when {{ {condition} }};"

def nested(opening, closing, core="true", levels=31):
    return when(opening * levels + core + closing * levels)

texts = [
    nested("(", ")"), nested("[", "]", "1"), nested("{a:", "}", "1"), nested("ip(", ")", '"1"'),
    nested("if ", " then true else true"), nested("if true then true else ", ""),
    nested("(true && true && true && true && true && ", ")"), nested("if true && true && true then true else ", ""),
    when("true" + " && true" * 200), when("true" + " || true" * 200), when("1" + " + 1" * 199 + " > 1"),
    when("1" + " * 1" * 199 + " > 1"), when("!" * 200 + "true"), when("-" * 199 + "1 > 0"),
    when("context" + ".a" * 200), when("context" + '["a"]' * 200), when("[1]" + ".contains(1)" * 199),
    when("context has a" + ".a" * 190), when("a" + "()" * 1900), when("A::" * 1000 + "f()"),
    when("1 in [" + "1, " * 1200 + "1]"), when('"' + "a" * 1500 + '" like "' + "*a" * 1200 + '"'),
    "@a " * 1200 + "permit (principal, action, resource);",
    "permit (principal, action, resource)" + " when { true }" * 280 + ";",
    (when("(" * 31 + "true" + " && true" * 10 + ")" * 31)) * 40,
]
words = ["(", ")", "[", "]", "{", "}", "if", "then", "else", "true", "1", "context", ".", "a", "&&", "!", "-", ";", ",",
         "permit", "(principal, action, resource)", "when", '"x"', "has", "in", "is", "Compute::User", ":", "@id", "=="]
choice = random.Random(int(os.environ["SEED"]))
texts += [" ".join(choice.choices(words, k=choice.randrange(1, 400))) for _ in range(1500)]

def run():
    for text in texts:
        scanned, issues = check_text(text)
        if not scanned.issues and cedar.parse_fault(text) is None:
            for body in cedar.structure(text):
                mentions(body), permits_everybody(body), rights_given_away(body)
    print("survived", len(texts))

threading.stack_size(2 * 1024 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_text_never_ends_the_process(seed: int) -> None:
    environment = {"DJANGO_SETTINGS_MODULE": "computeplatform.settings", "SECRET_KEY": "x", "SEED": str(seed)}
    done = subprocess.run([sys.executable, "-c", HOSTILE], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "survived 1525\n"), done.stderr[-2000:]
