"""Django's entry for the reservations app."""

from importlib import import_module

from django.apps import AppConfig


class ReservationsConfig(AppConfig):
    name = "reservations"
    verbose_name = "Reservations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what policies can say, what must hold and what is measured; models can be imported only now."""
        import_module("reservations.vocabulary").register_vocabulary()
        import_module("reservations.invariants")
        import_module("reservations.confirmation_invariants")
        import_module("reservations.host_invariants")
        import_module("reservations.line_invariants")
        import_module("reservations.node_invariants")
        import_module("reservations.term_invariants")
        import_module("reservations.gauges")
