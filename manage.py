#!/usr/bin/env python
"""Django's command line, with Celery's current app set to ours."""

import os
import sys

from django.core.management import execute_from_command_line

# Imported for its effect: a command that sends a task uses our broker.
from computeplatform.celery import app as celery_app  # noqa: F401

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "computeplatform.settings")
    execute_from_command_line(sys.argv)
