"""One JSON object per log line on standard error, from our code and from libraries, with the request's id."""

import logging
import logging.config
from typing import Any

import structlog

SHARED_PROCESSORS: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


# Without the frames' local variables: a fault near a credential must not write it down.
TRACEBACKS = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))

# Answered well, these say nothing that a metric does not: heartbeats come several times a minute from every node.
ROUTINE = ("POST /api/compute/nodes/sync", "GET /healthz", "GET /readyz", "GET /metrics")


def drop_routine(_logger: Any, _name: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Leave out the line of a routine request that was answered 200."""
    if line.get("event") == "request_finished" and line.get("code") == 200 and line.get("request") in ROUTINE:
        raise structlog.DropEvent
    return line


def configure_logging(level: str) -> None:
    """Send everything at `level` and above through one JSON handler. May be called again; the last call counts."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            drop_routine,
            *SHARED_PROCESSORS,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "json": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": SHARED_PROCESSORS,
                    "processors": [
                        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                        TRACEBACKS,
                        structlog.processors.JSONRenderer(),
                    ],
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["stderr"], "level": level},
            "loggers": {
                # Chatty at INFO: one line per received task, per beat tick, per request sent by a client.
                "celery.worker.strategy": {"level": "WARNING"},
                "celery.app.trace": {"level": "WARNING"},
                "celery.beat": {"level": "WARNING"},
                "django_celery_beat.schedulers": {"level": "WARNING"},
                "httpx": {"level": "WARNING"},
                # The heads of the audit log: its proof outside the database, however quiet the log is set (IAM-7).
                "iam.audit": {"level": "INFO"},
                "django.request": {"level": "ERROR"},  # 4xx are in the request's own line
            },
        }
    )
