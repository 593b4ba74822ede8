"""Django as a WSGI application; `computeplatform.asgi` wraps it for the server."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "computeplatform.settings")

# Imported for its effect: from here on `shared_task.delay` in this process means our broker, not Celery's default one.
from computeplatform.celery import app as celery_app  # noqa: F401

application = get_wsgi_application()
