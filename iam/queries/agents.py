"""Agents and their sponsors."""

from django.db.models import QuerySet

from iam.contracts import PrincipalInfo
from iam.models import Principal
from iam.queries.pages import newest_first
from iam.queries.principals import principal_info


def agents_of(tenant_id: str, sponsor_id: str | None) -> QuerySet[Principal]:
    """The tenant's agents, or one sponsor's."""
    agents = Principal.objects.filter(tenant_id=tenant_id, kind="agent")
    return agents if sponsor_id is None else agents.filter(sponsor_id=sponsor_id)


def agent_page(
    tenant_id: str, *, sponsor_id: str | None, status: str | None, limit: int, cursor: str | None
) -> tuple[list[PrincipalInfo], str | None]:
    """Agents of the tenant or of one sponsor, newest first."""
    everything = agents_of(tenant_id, sponsor_id)
    wanted = everything if status is None else everything.filter(status=status)
    rows, following = newest_first(everything, wanted, limit=limit, cursor=cursor)
    return [principal_info(row) for row in rows], following


def agents_ending() -> list[str]:
    """Agents that are suspended with all that they have reserved (OPS-4)."""
    return list(Principal.objects.filter(end_reservations=True, status="suspended").values_list("id", flat=True))
