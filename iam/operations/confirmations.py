"""Confirmations: asked for by a decision, decided by the person, used by the next decision (IAM-6, CRE-8, EXT-7).

A question is ended by time and by its delegation without a write. Whoever acts on one does so under its row's lock, and
writes down first what it has come to: of an approval and an end that meet, one counts, for everybody.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet, prefetch_related_objects

from computeplatform.api.calls import Actor, ConfirmationAsked, Resource
from computeplatform.db.retry import in_transaction
from computeplatform.errors import AccessDenied, TryAgain
from computeplatform.ids import new_id
from computeplatform.quantities import covers_cost
from iam.contracts import ConfirmationInfo, Gate, Subject
from iam.domain import confirming
from iam.errors import ConfirmationClosed
from iam.locks import lock_confirmation, lock_confirmations
from iam.models import Confirmation
from iam.queries.confirmations import confirmation_info, state_of

# Those that can still let a call through or stop it; of one question there is at most one such.
_STANDING = (confirming.PENDING, confirming.APPROVED, confirming.REFUSED)


@dataclass(frozen=True)
class Passage:
    """What the gate says: ``permitted``, ``confirmation-required`` or ``confirmation-refused``, and the confirmation
    that it speaks of (used, asked for, refused or lapsed); without an id where none was to be opened."""

    reason: str
    confirmation: ConfirmationAsked | None = None


def gate(
    asked: Mapping[str, Any], *, cost: Decimal, currency: str, confirmation_id: str = "", opens: bool = True
) -> Gate:
    """What a person is to be asked, where their delegation wants that; an approval is bound to all of ``asked``."""
    return Gate(asked, confirming.digest_of(asked), cost, currency, confirmation_id, opens)


def pass_gate(
    subject: Subject,
    action: str,
    resource: Resource,
    gate: Gate,
    *,
    decision_id: str,
    now: int,
) -> Passage:
    """The gate of a decision that everything else permits, in the decision's transaction.

    An approval that fits is used up by ``decision_id``; otherwise the person is asked, unless they are already. A
    request that remembers its confirmation is over with it when it was refused or has lapsed; one that does not stays
    refused for the same question alone. What is void or used is asked anew, and what the new question takes the place
    of is void.
    """
    if not gate.opens:
        return Passage("confirmation-required", ConfirmationAsked())
    row = _remembered(subject, gate) if gate.confirmation_id else _standing(subject, action, resource, gate)
    if row is None:
        return Passage("confirmation-required", _ask(subject, action, resource, gate, now=now))
    state = _settle(row, now=now)
    if state == confirming.REFUSED or (state == confirming.LAPSED and gate.confirmation_id):
        return Passage("confirmation-refused", _asked(row))
    if _is_of(row, subject, gate):
        if state == confirming.PENDING:
            return Passage("confirmation-required", _asked(row))
        if state == confirming.APPROVED and _covers(row, gate):
            row.state, row.used_at, row.decision_id = confirming.USED, now, decision_id
            row.save(update_fields=["state", "used_at", "decision_id"])
            return Passage("permitted", _asked(row))
    if state in (confirming.PENDING, confirming.APPROVED):
        row.state = confirming.VOID
        row.save(update_fields=["state"])
    return Passage("confirmation-required", _ask(subject, action, resource, gate, now=now))


def _remembered(subject: Subject, gate: Gate) -> Confirmation | None:
    found = lock_confirmations(Confirmation.objects.filter(tenant_id=subject.tenant_id, id=gate.confirmation_id))
    return found[0] if found else None


def _standing(subject: Subject, action: str, resource: Resource, gate: Gate) -> Confirmation | None:
    """What has been asked in just these words and can still let it through, or stop it."""
    found = lock_confirmations(_same_question(subject, action, resource, gate).filter(state__in=_STANDING))
    return found[0] if found else None


def _same_question(subject: Subject, action: str, resource: Resource, gate: Gate) -> QuerySet[Confirmation]:
    return Confirmation.objects.filter(
        delegation_id=subject.delegation_id, action=action, resource_id=resource.id, digest=gate.digest
    )


def _is_of(row: Confirmation, subject: Subject, gate: Gate) -> bool:
    """An approval counts in a session of its own delegation, and for what was asked."""
    return (row.delegation_id, row.digest) == (subject.delegation_id, gate.digest)


def _covers(row: Confirmation, gate: Gate) -> bool:
    return covers_cost(
        approved=row.estimated_cost, approved_currency=row.currency, cost=gate.cost, currency=gate.currency
    )


def _ask(subject: Subject, action: str, resource: Resource, gate: Gate, *, now: int) -> ConfirmationAsked:
    """Open the request. Where the same question was opened at this moment by another call, that one is it."""
    row = Confirmation(
        id=new_id("cnf"),
        tenant_id=subject.tenant_id,
        user_id=subject.principal_id,
        agent_id=subject.agent_id,
        delegation_id=subject.delegation_id,
        action=action,
        resource_type=resource.type,
        resource_id=resource.id,
        asked=dict(gate.asked),
        digest=gate.digest,
        estimated_cost=gate.cost,
        currency=gate.currency,
        created_at=now,
        expires_at=now + confirming.OPEN,
    )
    Confirmation.objects.bulk_create([row], ignore_conflicts=True)
    pending = _same_question(subject, action, resource, gate).filter(state=confirming.PENDING).first()
    if pending is None:
        # Another call's, and it has been answered since.
        raise TryAgain
    return _asked(pending)


def _asked(row: Confirmation) -> ConfirmationAsked:
    return ConfirmationAsked(row.id, row.expires_at)


@in_transaction
def decide_confirmation(
    *, tenant_id: str, confirmation_id: str, approve: bool, reason: str = "", by: Actor, now: int
) -> ConfirmationInfo:
    """The person's answer. An approval can be used for 30 minutes from now.

    Raises NotFound, AccessDenied for anybody but the confirmation's user, ConfirmationClosed.
    """
    row = lock_confirmation(tenant_id, confirmation_id)
    if row.user_id != by.principal_id:
        raise AccessDenied
    if (state := state_of(row, now=now)) != confirming.PENDING:
        raise ConfirmationClosed(confirming.why_closed(state), state)
    row.state = confirming.APPROVED if approve else confirming.REFUSED
    row.decided_at, row.decide_reason = now, reason
    if approve:
        row.expires_at = now + confirming.OPEN
    row.save(update_fields=["state", "decided_at", "decide_reason", "expires_at"])
    return confirmation_info(row, now=now)


@in_transaction
def settle(ids: Collection[str], *, now: int) -> dict[str, ConfirmationInfo]:
    """What these confirmations are now, by id, locked until the caller's transaction ends.

    What time or a delegation has ended is written down: an answer that arrived before and comes to the row only now
    finds it ended.
    """
    rows = lock_confirmations(Confirmation.objects.filter(id__in=ids))
    prefetch_related_objects(rows, "delegation")
    for row in rows:
        _settle(row, now=now)
    return {row.id: confirmation_info(row, now=now) for row in rows}


def _settle(row: Confirmation, *, now: int) -> str:
    if (state := state_of(row, now=now)) != row.state:
        row.state = state
        row.save(update_fields=["state"])
    return state
