"""Django's entry for the kernel and the wiring."""

from importlib import import_module

from django.apps import AppConfig
from django.core.checks import Tags, register

from computeplatform.checks import postgresql_is_new_enough


class ComputePlatformConfig(AppConfig):
    name = "computeplatform"
    label = "computeplatform"
    verbose_name = "Platform"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("computeplatform.events.invariants")
        register(postgresql_is_new_enough, Tags.database)
