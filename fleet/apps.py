"""Django's entry for the fleet app."""

from importlib import import_module

from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "fleet"
    verbose_name = "Fleet"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what policies can say and what must hold; models can be imported only now."""
        import_module("fleet.vocabulary").register_vocabulary()
        import_module("fleet.invariants")
