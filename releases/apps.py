"""Django's entry for the releases app."""

from django.apps import AppConfig


class ReleasesConfig(AppConfig):
    name = "releases"
    verbose_name = "Releases"
    default_auto_field = "django.db.models.BigAutoField"
