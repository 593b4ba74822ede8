"""Django's entry for the quotas app."""

from importlib import import_module

from django.apps import AppConfig


class QuotasConfig(AppConfig):
    name = "quotas"
    verbose_name = "Quotas"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks; models can be imported only now."""
        import_module("quotas.invariants")
