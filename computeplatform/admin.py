"""The kernel's tables, and the beat's schedule, for operators; read-only."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django_celery_beat import models as beat

import fleet.events
import quotas.events
import reservations.events
from computeplatform.admin_tools import (
    ReadOnlyAdmin,
    column,
    decisions_of,
    instant,
    known,
    linked,
    moment,
    named,
    prettied,
    register_kind,
)
from computeplatform.api.methods import methods
from computeplatform.models import Event, IdempotencyKey, ServiceGap, TenantSequence, Tick

register_kind("event", "computeplatform_event")

TENANT = linked("tenant_id", "tenant")
ACTOR = linked("actor_id", "principal", "by")
REQUEST = column("request", "request", lambda event: decisions_of(event.request_id), ordering="request_id")


def _subject_kind(event: Event) -> str:
    return event.subject_type


SUBJECT = linked("subject_id", _subject_kind, "subject")


def _types() -> Sequence[str]:
    """Every type of event that there is: the constants of the apps' events."""
    modules = (fleet.events, quotas.events, reservations.events)
    values = [value for module in modules for name, value in vars(module).items() if name.isupper()]
    return sorted(value for value in values if isinstance(value, str) and "." in value)


def _subjects() -> Sequence[str]:
    return sorted({"offer", *(kind.partition(".")[0] for kind in _types())})


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = [
        instant("at", "at"),
        "type",
        TENANT,
        SUBJECT,
        "reason",
        ACTOR,
        REQUEST,
        "sequence",
    ]
    list_display_links = ["type"]
    list_filter = [known("type", _types), known("subject_type", _subjects, "subject"), named("tenant_id", "tenant")]
    search_fields = ["=id", "=tenant_id", "=subject_id", "=request_id", "=actor_id"]
    ordering = ["-position"]
    fieldsets = [
        (None, {"fields": ["type", "id", instant("at", "at"), TENANT, "reason"]}),
        ("Subject", {"fields": ["subject_type", SUBJECT, "subject_version"]}),
        ("Who", {"fields": [ACTOR, linked("agent_id", "principal", "agent"), REQUEST]}),
        ("More", {"fields": [prettied("data"), "sequence", "position"]}),
    ]


@admin.register(TenantSequence)
class TenantSequenceAdmin(ReadOnlyAdmin):
    list_display = ["tenant_id", "last"]
    search_fields = ["=tenant_id"]
    ordering = ["tenant_id"]
    fieldsets = [(None, {"fields": [TENANT, "last"]})]


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin):
    list_display = ["key", "method", TENANT, linked("identity", "principal", "of"), "object_id", instant("created_at")]
    list_filter = [
        known("method", lambda: [f"{one.service}/{one.id}" for one in methods() if one.replay]),
        named("tenant_id", "tenant"),
    ]
    search_fields = ["=key", "=tenant_id", "=object_id", "=identity"]
    ordering = ["-created_at"]
    # Without the digest: nobody here needs what a request is compared by.
    fieldsets = [
        (None, {"fields": ["key", "method", TENANT, linked("identity", "principal", "of"), "object_id"]}),
        ("Record", {"fields": [instant("created_at")]}),
    ]


@admin.register(Tick)
class TickAdmin(ReadOnlyAdmin):
    list_display = ["name", instant("last_at", "last ran")]
    search_fields = ["name"]
    ordering = ["name"]
    fieldsets = [(None, {"fields": ["name", instant("last_at", "last ran")]})]


@admin.register(ServiceGap)
class ServiceGapAdmin(ReadOnlyAdmin):
    list_display = ["id", instant("began_at", "began"), instant("ended_at", "ended")]
    search_fields = ["=id"]
    ordering = ["-began_at"]
    fieldsets = [(None, {"fields": [instant("began_at", "began"), instant("ended_at", "ended")]})]


# The beat's own pages know neither our look nor that its rows come from the code.
for model in (
    beat.PeriodicTask,
    beat.IntervalSchedule,
    beat.CrontabSchedule,
    beat.SolarSchedule,
    beat.ClockedSchedule,
):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


def _interval(task: Any) -> str:
    return f"every {task.interval.every} {task.interval.period}" if task.interval else "-"


@admin.register(beat.PeriodicTask)
class PeriodicTaskAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "task",
        "queue",
        column("interval_text", "interval", _interval),
        "enabled",
        moment("last_run_at", "last sent"),
        "total_run_count",
    ]
    list_select_related = ["interval"]
    list_filter = ["enabled", "queue"]
    search_fields = ["name", "task"]
    ordering = ["name"]
    fieldsets = [
        (None, {"fields": ["name", "description", column("interval_text", "interval", _interval), "enabled"]}),
        (
            "Sent",
            {
                "fields": [
                    "task",
                    "queue",
                    "expire_seconds",
                    moment("last_run_at", "last sent"),
                    "total_run_count",
                    moment("date_changed", "changed"),
                ]
            },
        ),
    ]


@admin.register(beat.IntervalSchedule)
class IntervalScheduleAdmin(ReadOnlyAdmin):
    list_display = ["every", "period"]
    list_filter = ["period"]
    search_fields = ["=every"]
    ordering = ["every"]
    fieldsets = [(None, {"fields": ["every", "period"]})]
