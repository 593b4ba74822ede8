"""Every model has a page that shows and does not change it, in few queries, readably and without secrets (OPS-1)."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from computeplatform.home import SIDEBAR
from computeplatform.models import IdempotencyKey
from computeplatform.settings import BASE_DIR
from iam.models import ApiKey, Confirmation, DelegatedSession, Delegation, Operator
from reservations.models import Reservation
from tests.platform.conftest import grow
from tests.support.world import World

MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label)
# As many as a page may ask for, whatever is on it: the session, the operator, the rows, their number, names by kind.
LIST_QUERIES, PAGE_QUERIES = 14, 22


def name_of(model: Any) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"


def list_of(model: Any) -> str:
    return reverse(f"admin:{name_of(model)}_changelist")


def page_of(row: Any, view: str = "change") -> str:
    return reverse(f"admin:{name_of(type(row))}_{view}", args=[quote(row.pk)])


def text_of(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return answer.content.decode()


@pytest.mark.clause("OPS-1", "every model is shown and none is edited")
def test_every_row_is_shown_and_none_is_edited(peopled, operator):
    for model in MODELS:
        row = model.objects.first()
        assert row is not None, f"the world lacks a {model._meta.label}"
        before = list(model.objects.order_by("pk").values())
        assert page_of(row) in text_of(operator, list_of(model)), model
        text_of(operator, page_of(row))
        assert operator.get(reverse(f"admin:{name_of(model)}_add")).status_code == 403
        assert operator.post(page_of(row), {}).status_code == 403
        assert operator.post(page_of(row, "delete"), {"post": "yes"}).status_code == 403
        deleting = {"action": "delete_selected", "_selected_action": [str(row.pk)], "post": "yes"}
        operator.post(list_of(model), deleting)
        assert list(model.objects.order_by("pk").values()) == before, model


def queries(client: Client, address: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as asked:
        text_of(client, address)
    return len(asked)


@pytest.mark.clause("OPS-1", "pages ask few questions")
def test_the_number_of_queries_does_not_grow_with_the_rows(peopled, operator):
    lists = [list_of(model) for model in MODELS]
    some = [page_of(model.objects.order_by("pk").first()) for model in MODELS]
    before = {address: queries(operator, address) for address in ["/admin/", *lists, *some]}
    grow(peopled)
    # Not equal: what a first look fills (content types, sessions) a second one finds.
    more = {
        address: (before[address], found)
        for address in before
        if (found := queries(operator, address)) > before[address]
    }
    assert more == {}
    assert max(before[address] for address in ["/admin/", *lists]) <= LIST_QUERIES
    assert max(before[address] for address in some) <= PAGE_QUERIES


def secrets_of(world: World) -> set[str]:
    """What no page may hold: tokens, and the hashes of whatever was hashed."""
    holders: list[Any] = [world.ann, world.bob, world.gil, world.acme, world.globex, *world.nodes]
    return {
        world.admin.token,
        *(one.api.token for one in holders),
        *ApiKey.objects.values_list("token_hash", flat=True),
        *DelegatedSession.objects.values_list("token_hash", flat=True),
        *Operator.objects.values_list("password", flat=True),
        *Reservation.objects.values_list("digest", flat=True),
        *IdempotencyKey.objects.values_list("digest", flat=True),
    }


@pytest.mark.clause("OPS-1", "times are readable")
@pytest.mark.clause("OPS-2", "secrets and hashes are never shown")
def test_no_page_holds_a_secret_a_bare_time_or_a_script(peopled, operator):
    hidden = secrets_of(peopled)
    assert len(hidden) > 20
    rows = [row for model in MODELS for row in model.objects.all()[:5]]
    for address in ["/admin/", *(list_of(model) for model in MODELS), *(page_of(row) for row in rows)]:
        answer = operator.get(address)
        shown = answer.content.decode()
        assert answer.status_code == 200
        assert [one for one in hidden if one in shown] == [], address
        # Milliseconds are shown in stored JSON alone; addresses nobody reads.
        read = re.sub(r'<pre.*?</pre>|href="[^"]*"', "", shown, flags=re.DOTALL)
        assert re.findall(r"\b1[0-9]{12}\b", read) == [], address
        # Scripts come from our own files: the browser would refuse one inside a page.
        assert "script-src 'self' 'unsafe-eval'" in answer.headers["Content-Security-Policy"]
        assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", shown) == [], address


@pytest.mark.clause("OPS-1", "what belongs together is linked")
def test_pages_link_to_what_belongs_to_them(peopled, operator):
    row = Reservation.objects.get(name="train")
    shown = text_of(operator, page_of(row))
    assert f'href="{reverse("admin:fleet_pool_change", args=[quote(row.pool_id)])}"' in shown
    assert f'href="{reverse("admin:iam_decision_change", args=[quote(row.decision_id)])}"' in shown
    assert f'href="{reverse("admin:iam_principal_change", args=[quote(row.creator_id)])}"' in shown
    node_id = row.bookings.get().node_id
    assert f'href="{reverse("admin:fleet_node_change", args=[quote(node_id)])}"' in shown
    assert "reservation.placed" in shown
    assert "reservation.active" in shown
    history = operator.get(page_of(row, "history"))
    assert history.headers["Location"] == (
        reverse("admin:computeplatform_event_changelist") + f"?subject_type=reservation&subject_id={row.id}"
    )
    listed = text_of(operator, history.headers["Location"])
    assert "reservation.active" in listed
    assert operator.get(history.headers["Location"]).context["cl"].result_count == 3


@pytest.mark.clause("OPS-1", "every link on an object's page leads to a page")
def test_every_link_leads_somewhere(peopled, operator):
    agents = [Reservation.objects.exclude(creator_agent_id="").get()]
    links: dict[str, str] = {}
    for row in [*agents, *(row for model in MODELS for row in model.objects.order_by("pk")[:2])]:
        shown = text_of(operator, page_of(row))
        main = shown[shown.index('id="main"') :]
        links |= {unescape(one): page_of(row) for one in re.findall(r'href="(/admin/[^"#]+)"', main)}
    acts = re.compile(r"/(release|cancel|cordon|uncordon|drain|history|logout|password_change)/")
    wrong = {one: on for one, on in links.items() if not acts.search(one) and operator.get(one).status_code != 200}
    assert wrong == {}
    assert len(links) > 100


def labels(shown: str) -> set[str]:
    """The coloured states on a page."""
    return set(re.findall(r'<span class="inline-block font-semibold[^>]*>\s*([a-z-]+)\s*</span>', shown))


@pytest.mark.clause("OPS-1", "what time or another object has ended is shown as ended, and found as that")
def test_what_has_run_out_is_not_shown_as_good(peopled, operator, clock):
    asked, key = Confirmation.objects.get(), ApiKey.objects.get(principal__name="bot")
    delegation = asked.delegation

    def all_show(status_of_key: str, of_delegation: str, of_asked: str) -> None:
        for row, field, now in (
            (key, "status", status_of_key),
            (delegation, "status", of_delegation),
            (asked, "state", of_asked),
        ):
            listed = f"{list_of(type(row))}?q={row.pk}"
            for address in (listed, page_of(row)):
                assert now in labels(text_of(operator, address)), address
            assert labels(text_of(operator, listed)) == {now}
            for value in ("active", "pending", "expired", "lapsed", "revoked", "void", "nonsense"):
                found = operator.get(f"{listed}&{field}={value}")
                # What no such object can be is no filter.
                known = value in dict(found.context["cl"].filter_specs[0].lookup_choices)
                assert found.context["cl"].result_count == (value == now or not known), (row, value)
        assert of_delegation in labels(text_of(operator, page_of(asked.agent)))
        assert of_delegation in labels(text_of(operator, page_of(asked.user)))
        assert of_asked in labels(text_of(operator, page_of(delegation)))

    all_show("active", "active", "pending")
    Delegation.objects.update(status="revoked", revoked_at=clock.now)
    all_show("active", "revoked", "void")
    Delegation.objects.update(status="active", revoked_at=None)
    clock.set(delegation.expires_at)
    all_show("active", "expired", "lapsed")
    clock.set(key.expires_at)
    all_show("expired", "expired", "lapsed")


@pytest.mark.clause("OPS-1", "every model is searched and filtered")
def test_search_and_every_filter_answer(peopled, operator):
    for model in MODELS:
        shown = text_of(operator, list_of(model))
        # One choice of each filter, sorted by every column that can be sorted by.
        choices = dict(re.findall(r'href="\?([a-z_]+)=([^"&]+)"', shown))
        filters = [f"{name}={value}" for name, value in choices.items()]
        text_of(operator, f"{list_of(model)}?{'&'.join([*filters, 'o=1.2.3.4.5.6.7.8.9.10'])}")
        assert admin.site._registry[model].search_fields, model
        assert "0 results" in text_of(operator, list_of(model) + "?q=no-such-thing")


def test_a_search_finds_by_id_and_by_name(operator, peopled):
    row = Reservation.objects.get(name="train")
    for words in (row.id, "train"):
        found = text_of(operator, f"{list_of(Reservation)}?q={words}")
        assert "1 result" in found
        assert page_of(row) in found


@pytest.mark.clause("OPS-1", "every model of ours has a page")
def test_every_model_of_ours_has_a_page():
    ours = {model for app in apps.get_app_configs() if Path(app.path).parent == BASE_DIR for model in app.get_models()}
    assert {model._meta.label for model in ours - set(MODELS)} == set()
    assert len(ours) > 20


def test_the_sidebar_leads_to_every_model(operator, peopled):
    home = text_of(operator, "/admin/")
    assert {page for group in SIDEBAR.values() for _, _, page in group} == {name_of(model) for model in MODELS}
    assert [list_of(model) for model in MODELS if f'href="{list_of(model)}"' not in home] == []


def test_the_home_page_tells_what_is(operator, peopled):
    home = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text_of(operator, "/admin/")))
    assert "20 of 24" in home  # 8 + 4 + 8 devices of three nodes with eight each
    assert "83 %" in home
    assert "3 of 3" in home
    assert "You act as olga" in home


def test_an_onlooker_is_told_so(onlooker, world):
    assert "You can look, but not act" in text_of(onlooker, "/admin/")


def test_nobody_sees_a_page_without_signing_in(peopled):
    for model in MODELS:
        answer = Client().get(list_of(model))
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith("/admin/login/")


def test_a_bearer_token_opens_no_page(peopled):
    client = Client(headers={"authorization": f"Bearer {peopled.admin.token}"})
    assert client.get("/admin/").status_code == 302


def test_what_is_not_there_is_said_so(operator, world):
    answer = operator.get(reverse("admin:reservations_reservation_change", args=["res_nothing"]))
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/admin/"
