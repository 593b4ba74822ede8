"""The web process: an ASGI wrapper that parks waiting calls, around plain synchronous Django (DESIGN §5.3)."""

import os

from computeplatform.bridge import Bridge
from computeplatform.parking import Hub, ParkingLot
from computeplatform.wsgi import application as django

# Threads that run Django at once; each holds one database connection.
_THREADS = int(os.environ.get("WEB_THREADS", "16"))


def _conninfo() -> str:
    """Where Django connects to, with all that its settings say of TLS and the like, as one string for libpq."""
    from django.db import connection  # noqa: PLC0415 - only after wsgi has set Django up
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415
    from psycopg.pq import Conninfo  # noqa: PLC0415

    keywords = {option.keyword.decode() for option in Conninfo.get_defaults()}
    params = {k: v for k, v in connection.get_connection_params().items() if k in keywords}
    # A connection that only listens does not notice by itself that the other side is gone.
    params |= {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
    return make_conninfo(**params | {"application_name": "compute-hub"})


application = ParkingLot(Bridge(django, workers=_THREADS), Hub(_conninfo()), brief=_THREADS // 2)  # type: ignore[arg-type]
