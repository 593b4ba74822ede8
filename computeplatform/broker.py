"""The broker's transport: kombu's for Redis, but a worker outlives the loss of its connection.

When the connection is lost with messages in hand, Celery lets go of it twice. The second time kombu's channel (5.7)
wants to give the messages back and no longer knows to whom: an AttributeError, which ends the worker. So does a task
that finishes afterwards and acknowledges its message. Here both get the error of a lost connection, which everybody
there expects; the messages come back by the visibility timeout.
"""

from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as kombu_redis
from redis.exceptions import ConnectionError as ConnectionLost


class Channel(kombu_redis.Channel):
    """One that says so when its connection is gone."""

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 - kombu's signature
        if self.connection is None or self.connection.client is None:
            raise ConnectionLost("The connection of this channel has been given up.")
        return super()._connparams(asynchronous)  # type: ignore[misc]  # it is there


class Transport(kombu_redis.Transport):
    """What URLs of Redis mean to Celery."""

    Channel = Channel


def use_for_redis() -> None:
    """Have every ``redis://`` and ``rediss://`` broker URL of this process speak through this transport."""
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))
