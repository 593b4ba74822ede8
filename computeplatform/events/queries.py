"""Reading events: by sequence, of one tenant, only stamped ones."""

from collections.abc import Collection
from typing import Any

from django.db.models import Q

from computeplatform.events.models import Event


def after(*, tenant_id: str, sequence: int, types: Collection[str], limit: int) -> list[dict[str, Any]]:
    """Up to ``limit`` events past ``sequence``, as the wire shows them. A type may end in ``.*``."""
    rows = Event.objects.filter(tenant_id=tenant_id, sequence__gt=sequence).order_by("sequence")
    if types:
        wanted = Q()
        for name in types:
            wanted |= Q(type__startswith=name[:-1]) if name.endswith(".*") else Q(type=name)
        rows = rows.filter(wanted)
    return [as_json(row) for row in rows[:limit]]


def history(*, subject_type: str, subject_id: str, limit: int) -> list[Event]:
    """What has happened to one object, newest first, stamped or not: for operators, whoever's the object is."""
    rows = Event.objects.filter(subject_type=subject_type, subject_id=subject_id)
    return list(rows.order_by("-subject_version", "-position")[:limit])


def as_json(event: Event) -> dict[str, Any]:
    """One event on the wire; empty members are left out."""
    shown = {
        "id": event.id,
        "sequence": event.sequence,
        "type": event.type,
        "tenantId": event.tenant_id,
        "at": event.at,
        "subject": {"type": event.subject_type, "id": event.subject_id, "version": event.subject_version},
        "actor": {"principal": event.actor_id} | ({"agent": event.agent_id} if event.agent_id else {}),
        "data": event.data,
    }
    if event.reason:
        shown["reason"] = event.reason
    if event.request_id:
        shown["requestId"] = event.request_id
    return shown
