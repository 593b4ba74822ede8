"""The product's settings, as tests run them.

PostgreSQL and Redis are real and come from the environment (`make test` starts private ones). Each pytest-xdist worker
gets its own database (pytest-django names it) and its own Redis database: number 8 and upwards, which the tests empty.
"""

import os
from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ImproperlyConfigured

if not (os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL")):
    raise ImproperlyConfigured("Tests need DATABASE_URL and REDIS_URL. Run `make test`: it starts both for you.")

worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
os.environ["REDIS_URL"] = urlunsplit(urlsplit(os.environ["REDIS_URL"])._replace(path=f"/{8 + int(worker)}"))
# In the environment, so that processes which tests start see the same.
os.environ.setdefault("SECRET_KEY", "only-for-tests")
os.environ.setdefault("HTTPS_ONLY", "off")
os.environ.setdefault("LOG_LEVEL", "WARNING")

from computeplatform.settings import *  # noqa: E402, F403

ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
