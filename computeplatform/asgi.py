"""The web process: an ASGI wrapper that parks waiting calls, around plain synchronous Django (DESIGN §5.3)."""

import os

from a2wsgi import WSGIMiddleware

from computeplatform.parking import Hub, ParkingLot
from computeplatform.wsgi import application as django

# Threads that run Django at once; each holds one database connection.
_THREADS = int(os.environ.get("WEB_THREADS", "16"))


def _conninfo() -> str:
    from django.db import connection  # noqa: PLC0415 - only after wsgi has set Django up
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415

    params = connection.get_connection_params()
    known = ("dbname", "user", "password", "host", "port", "sslmode", "service", "passfile")
    return make_conninfo(**{k: params[k] for k in known if params.get(k)}, application_name="compute-hub")


application = ParkingLot(WSGIMiddleware(django, workers=_THREADS), Hub(_conninfo()))  # type: ignore[arg-type]
