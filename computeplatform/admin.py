"""The kernel's tables, and the beat's schedule, for operators; read-only."""

from django.contrib import admin
from django_celery_beat import models as beat

from computeplatform.admin_tools import ReadOnlyAdmin, instant
from computeplatform.models import Event, IdempotencyKey, TenantSequence, Tick


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = [
        "type",
        "tenant_id",
        "sequence",
        "subject_id",
        "subject_version",
        "reason",
        "actor_id",
        instant("at", "at"),
    ]
    list_filter = ["type"]
    search_fields = ["=id", "=tenant_id", "=subject_id", "=request_id", "=actor_id"]
    ordering = ["-position"]


@admin.register(TenantSequence)
class TenantSequenceAdmin(ReadOnlyAdmin):
    list_display = ["tenant_id", "last"]
    search_fields = ["=tenant_id"]


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ReadOnlyAdmin):
    list_display = ["key", "method", "tenant_id", "identity", "object_id", instant("created_at")]
    list_filter = ["method"]
    search_fields = ["=key", "=tenant_id", "=object_id"]
    ordering = ["-created_at"]


@admin.register(Tick)
class TickAdmin(ReadOnlyAdmin):
    list_display = ["name", instant("last_at", "last ran")]


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


@admin.register(beat.PeriodicTask)
class PeriodicTaskAdmin(ReadOnlyAdmin):
    list_display = ["name", "task", "queue", "interval", "enabled", "last_run_at", "total_run_count"]


@admin.register(beat.IntervalSchedule)
class IntervalScheduleAdmin(ReadOnlyAdmin):
    list_display = ["every", "period"]
