"""One JSON object per log line on standard error, from our code and from libraries, with the request's id."""

import logging
import logging.config

import structlog

SHARED_PROCESSORS: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logging(level: str) -> None:
    """Send everything at `level` and above through one JSON handler. May be called again; the last call counts."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
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
                        structlog.processors.dict_tracebacks,
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
                "django.request": {"level": "ERROR"},  # 4xx are in the request's own line
            },
        }
    )
