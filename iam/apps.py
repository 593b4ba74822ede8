"""Django's entry for the iam app."""

from importlib import import_module

from django.apps import AppConfig

from iam.vocabulary import register_vocabulary


class IamConfig(AppConfig):
    name = "iam"
    verbose_name = "Identity and access"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what policies can say and what must hold; models can be imported only now."""
        register_vocabulary()
        import_module("iam.invariants")
