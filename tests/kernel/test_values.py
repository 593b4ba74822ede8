"""The kernel's plain values: ids, conditions, transitions, invariants, the registry of codes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from computeplatform import errors
from computeplatform.api.marks import open_mark, seal_mark
from computeplatform.conditions import Condition, from_json, to_json, with_condition, without_condition
from computeplatform.errors import CODES, InvalidInput, Issue, Refusal, StaleVersion
from computeplatform.ids import derived_id, new_id
from computeplatform.transitions import IllegalTransition, Machine

OPAQUE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_ids_are_opaque_and_never_alike():
    made = {new_id("pool") for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(OPAQUE.fullmatch(one) and one.startswith("pool_") for one in made)


@pytest.mark.clause("CRE-2", "the id follows from the key")
def test_a_derived_id_is_the_same_on_every_machine():
    # Written down: were it to change, every stored key would stand for another reservation.
    assert derived_id("res", "acme", "usr_1", "key-1") == "res_bwty3hyinfrhz3lxkg2eo3a2k5"


@pytest.mark.clause("CRE-2", "the id follows from the key")
@given(st.lists(words, max_size=4), st.lists(words, max_size=4))
def test_other_parts_make_another_id_however_they_are_cut(one: list[str], other: list[str]):
    assert (derived_id("x", *one) == derived_id("x", *other)) == (one == other)


@given(words, words, st.text(max_size=30))
def test_a_list_mark_opens_for_its_tenant_alone(tenant: str, other: str, forged: str):
    tenant = tenant.replace("\n", "")
    mark = seal_mark(tenant, "place\n1")
    assert open_mark(tenant, mark) == "place\n1"
    assert mark != seal_mark(tenant, "place\n1")
    if other != tenant:
        assert open_mark(other, mark) is None
    assert open_mark(tenant, mark[:-4] + "AAA=") is None
    assert open_mark(tenant, forged) is None


# --- Conditions -----------------------------------------------------------------------------------


def condition(kind: str, status: str, at: int, reason: str = "R") -> Condition:
    return Condition(kind, status, reason, "words", at)


def test_the_time_of_a_condition_moves_with_its_status_alone():
    first = with_condition((), condition("Bound", "False", 10))
    again = with_condition(first, condition("Bound", "False", 20, reason="Other"))
    assert again == (condition("Bound", "False", 10, reason="Other"),)
    turned = with_condition(again, condition("Bound", "True", 30))
    assert turned == (condition("Bound", "True", 30),)


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["True", "False"]), st.integers(0, 99)), max_size=9))
def test_there_is_one_condition_of_a_type_and_the_order_is_stable(steps: list[tuple[str, str, int]]):
    kept: tuple[Condition, ...] = ()
    for step in steps:
        kept = with_condition(kept, condition(*step))
    assert [c.type for c in kept] == sorted({kind for kind, _, _ in steps})
    assert from_json(to_json(kept)) == kept
    assert without_condition(kept, "A", "B", "C") == ()
    assert [c.type for c in without_condition(kept, "B")] == [c.type for c in kept if c.type != "B"]


# --- Transitions ----------------------------------------------------------------------------------

LAMP = Machine("lamp", {("off", "press"): "on", ("on", "press"): "off", ("on", "burn"): "dead"}, frozenset({"dead"}))


@pytest.mark.parametrize("state", ["off", "on", "dead", "nonsense"])
@pytest.mark.parametrize("event", ["press", "burn", "nonsense"])
def test_what_the_table_does_not_name_is_refused(state: str, event: str):
    if (state, event) in LAMP.table:
        assert LAMP.next(state, event) == LAMP.table[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"lamp: no move '{event}' from '{state}'"):
            LAMP.next(state, event)


def test_a_machine_names_its_states_events_and_sources():
    assert LAMP.states == {"off", "on", "dead"}
    assert LAMP.events == {"press", "burn"}
    assert (LAMP.sources("press"), LAMP.sources("burn"), LAMP.sources("x")) == ({"off", "on"}, {"on"}, set())


# --- Codes ----------------------------------------------------------------------------------------


@pytest.mark.clause("API-3", "codes and statuses")
def test_the_registry_has_the_codes_of_the_contract_and_no_other():
    assert {code.name: code.status for code in CODES.values()} == {
        "INVALID_INPUT": 400,
        "UNSUPPORTED": 400,
        "UNAUTHENTICATED": 401,
        "SPEND_LIMIT_REACHED": 402,
        "ACCESS_DENIED": 403,
        "CONFIRMATION_REQUIRED": 403,
        "NOT_FOUND": 404,
        "METHOD_NOT_ALLOWED": 405,
        "CONFLICT": 409,
        "INVALID_STATE": 409,
        "PAYLOAD_TOO_LARGE": 413,
        "UNSUPPORTED_MEDIA_TYPE": 415,
        "RATE_LIMITED": 429,
        "QUOTA_EXCEEDED": 429,
        "INTERNAL_ERROR": 500,
        "UNAVAILABLE": 503,
    }
    assert all(code.name == key and code.meaning and code.fix for key, code in CODES.items())


def subclasses(cls: type[Refusal]) -> set[type[Refusal]]:
    return {cls}.union(*(subclasses(sub) for sub in cls.__subclasses__()))


@pytest.mark.clause("API-3", "codes and statuses")
def test_every_refusal_of_every_app_has_a_code_and_words():
    found = subclasses(Refusal)
    assert len(found) > 20
    assert {cls.code for cls in found} <= set(CODES)
    assert all((cls.__doc__ or "").strip() for cls in found)


@pytest.mark.clause("API-3", "one denial")
def test_access_denied_takes_no_words_and_no_details():
    with pytest.raises(TypeError):
        errors.AccessDenied("because")
    assert (errors.AccessDenied().message, errors.AccessDenied().details) == ("Access denied.", None)


def test_issues_say_a_place_only_where_there_is_one():
    refused = InvalidInput([Issue("a", "is wrong"), Issue("text", "breaks", 3, 7)])
    assert refused.details == {
        "issues": [
            {"path": "a", "message": "is wrong"},
            {"path": "text", "message": "breaks", "line": 3, "column": 7},
        ]
    }
    assert refused.message == "a: is wrong; text: breaks"


@pytest.mark.clause("API-11", "a stale version")
def test_a_stale_version_says_the_present_one():
    refused = StaleVersion(given=2, present=5)
    assert (refused.code, refused.status) == ("CONFLICT", 409)
    assert refused.details == {"reason": "stale-version", "version": 5}
    assert refused.advice != CODES["CONFLICT"].fix
