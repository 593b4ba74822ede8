"""The product's settings with one view and no middleware."""

from computeplatform.settings import *  # noqa: F403

ROOT_URLCONF = "tests.bench.bare"
MIDDLEWARE = []
