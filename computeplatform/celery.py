"""The Celery app. Tasks are one call each; what they find to do is in PostgreSQL.

A process that sends or runs tasks imports this module once (manage.py, wsgi, the tests do), so that it is Celery's
current app. The package itself does not import it: the kernel has to be importable without Celery.
"""

import os
import sys
import warnings
from typing import Any

import structlog
from celery import Celery, signals
from celery.exceptions import SecurityWarning
from django.db import close_old_connections
from django_structlog.celery.steps import DjangoStructLogInitStep

from computeplatform import broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "computeplatform.settings")

# "Runs as root" is about pickled messages; ours are JSON.
warnings.filterwarnings("ignore", category=SecurityWarning)

broker.use_for_redis()
app = Celery("computeplatform")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.set_current()
app.set_default()
app.autodiscover_tasks()
# Without this Celery opens a connection to PostgreSQL for each task: most of the cost of a wake-up.
app.conf["CELERY_DB_REUSE_MAX"] = sys.maxsize
app.steps["worker"].add(DjangoStructLogInitStep)  # the request's id travels in the message's headers


@signals.setup_logging.connect
def keep_our_logging(**_: Any) -> None:
    """Settings have configured the log already; a receiver here keeps Celery from doing it its own way."""
    structlog.contextvars.clear_contextvars()


@signals.task_prerun.connect
def check_the_kept_connection(task: Any, **_: Any) -> None:
    """As before a request: one that has broken since is opened again (CONN_HEALTH_CHECKS)."""
    if not task.request.is_eager:
        close_old_connections()
