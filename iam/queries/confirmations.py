"""Confirmations as they are at the moment of reading: time and the end of a delegation need no write (IAM-6)."""

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Least

from computeplatform.errors import NotFound
from iam.contracts import ConfirmationInfo
from iam.domain import confirming
from iam.models import Confirmation, Delegation
from iam.queries.pages import newest_first


def delegation_ended_at(row: Delegation) -> int:
    """When the delegation ended or will end, whichever way comes first."""
    return row.expires_at if row.revoked_at is None else min(row.revoked_at, row.expires_at)


def state_of(row: Confirmation, *, now: int) -> str:
    """The effective state; it looks at the delegation of one that is pending."""
    if row.state not in (confirming.PENDING, confirming.APPROVED):
        return row.state
    ended_at = delegation_ended_at(row.delegation)
    return confirming.effective(row.state, expires_at=row.expires_at, delegation_ended_at=ended_at, now=now)


def confirmation_info(row: Confirmation, *, now: int) -> ConfirmationInfo:
    """The row as others see it."""
    return ConfirmationInfo(
        id=row.id,
        tenant_id=row.tenant_id,
        user_id=row.user_id,
        agent_id=row.agent_id,
        delegation_id=row.delegation_id,
        action=row.action,
        resource_type=row.resource_type,
        resource_id=row.resource_id,
        asked=row.asked,
        estimated_cost=row.estimated_cost,
        currency=row.currency,
        state=state_of(row, now=now),
        created_at=row.created_at,
        expires_at=row.expires_at,
        decided_at=row.decided_at,
        used_at=row.used_at,
    )


def get_confirmation(tenant_id: str, confirmation_id: str, *, now: int) -> ConfirmationInfo:
    """Raises NotFound, also for another tenant's."""
    row = Confirmation.objects.filter(tenant_id=tenant_id, id=confirmation_id).select_related("delegation").first()
    if row is None:
        raise NotFound("The tenant has no such confirmation.")
    return confirmation_info(row, now=now)


def confirmation_page(
    tenant_id: str,
    *,
    user_id: str | None,
    agent_id: str | None,
    state: str | None,
    limit: int,
    cursor: str | None,
    now: int,
) -> tuple[list[ConfirmationInfo], str | None]:
    """Confirmations of the tenant or of one user, newest first; each filter that is not None must hold."""
    everything = Confirmation.objects.filter(tenant_id=tenant_id)
    if user_id is not None:
        everything = everything.filter(user_id=user_id)
    wanted = everything if state is None else in_state(everything, state, now=now)
    if agent_id is not None:
        wanted = wanted.filter(agent_id=agent_id)
    rows, following = newest_first(everything, wanted.select_related("delegation"), limit=limit, cursor=cursor)
    return [confirmation_info(row, now=now) for row in rows], following


def in_state(rows: QuerySet[Confirmation], state: str, *, now: int) -> QuerySet[Confirmation]:
    """Those whose effective state is this one: ``confirming.effective``, said in SQL."""
    ended = Least(Coalesce(F("delegation__revoked_at"), F("delegation__expires_at")), F("delegation__expires_at"))
    pending, approved = Q(state=confirming.PENDING), Q(state=confirming.APPROVED)
    void = pending & Q(delegation_end__lt=F("expires_at"), delegation_end__lte=now)
    past = Q(expires_at__lte=now)
    conditions = {
        confirming.PENDING: pending & ~past & ~void,
        confirming.APPROVED: approved & ~past,
        confirming.LAPSED: Q(state=confirming.LAPSED) | (past & (approved | (pending & ~void))),
        confirming.VOID: Q(state=confirming.VOID) | void,
    }
    return rows.annotate(delegation_end=ended).filter(conditions.get(state, Q(state=state)))
