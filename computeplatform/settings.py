"""All settings of the product, for every process and for tests.

Everything that differs between machines comes from the environment; every variable may also be given as ``NAME_FILE``,
the path of a file that holds the value (container secrets). The defaults are those of production: whoever wants plain
http on a laptop says so (``manage.py up`` and the tests do). Variables:

``SECRET_KEY``        signs sessions; no default, and Django refuses to work with an empty one
``DATABASE_URL``      PostgreSQL 15 or newer, a direct connection: session locks and LISTEN need one
``REDIS_URL``         Redis or Valkey: broker, wake marks, rate limits. Nothing in it is the truth
``ALLOWED_HOSTS``     comma separated host names that the web process answers to
``CSRF_TRUSTED_ORIGINS`` comma separated origins of the admin, where a proxy changes the host
``HTTPS_ONLY``        ``off`` allows plain http: no redirect, no secure cookies, no HSTS
``BEHIND_TLS_PROXY``  ``on`` where a proxy ends TLS and *overwrites* ``X-Forwarded-Proto``
``TRUSTED_PROXIES``   comma separated networks (CIDR) of proxies that *append* to ``X-Forwarded-For``; none by default
``RELEASE_PINS_FILE`` public keys that release manifests are verified with; without it every manifest is refused
``LOG_LEVEL``         level of the log, default ``INFO``
``STATIC_ROOT``       where ``collectstatic`` writes and the web process reads; unset, it serves from the packages
"""

from pathlib import Path
from typing import Any

import environ
from kombu import Exchange, Queue

from computeplatform import environment
from computeplatform.logs import configure_logging

BASE_DIR = Path(__file__).resolve().parent.parent

# --- Process-wide ---------------------------------------------------------------------------------

DEBUG = False  # never: its error pages show settings, and it keeps every query in memory
SECRET_KEY = environment.text("SECRET_KEY")
# Loopback always: health checks come from inside the container, and no link to it means anything elsewhere.
ALLOWED_HOSTS = [*environment.words("ALLOWED_HOSTS"), "localhost", "127.0.0.1", "[::1]"]
RELEASE_PINS_FILE = environment.text("RELEASE_PINS_FILE")
ROOT_URLCONF = "computeplatform.urls"
WSGI_APPLICATION = "computeplatform.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "iam.Operator"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
LANGUAGE_CODE = "en-us"

INSTALLED_APPS = [
    "unfold",  # before the admin, whose templates it replaces
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_celery_beat",
    "django_structlog",
    "computeplatform",
    "iam",
    "quotas",
    "fleet",
    "reservations",
    "releases",
]

MIDDLEWARE = [
    "computeplatform.addresses.client_addresses",  # everything below sees the client where a proxy of ours connected
    "computeplatform.api.request_ids.RequestIdMiddleware",  # accepts or makes the id that everything below logs
    "django_structlog.middlewares.RequestMiddleware",  # first, so that refusals of the others carry a request id too
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "computeplatform.headers.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "computeplatform" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- PostgreSQL -----------------------------------------------------------------------------------

# Without the variable nothing is guessed: the first connection fails at once with a path that says why.
NO_DATABASE = "postgresql://%2Fnonexistent%2FDATABASE_URL-is-not-set/none"
DATABASES = {"default": environ.Env.db_url_config(environment.text("DATABASE_URL", NO_DATABASE))}
DATABASES["default"] |= {
    "ENGINE": "django.db.backends.postgresql",
    "ATOMIC_REQUESTS": False,  # operations open their own transactions; a waiting call must not hold one
    "CONN_MAX_AGE": None,  # one connection per thread, kept; checked before each request instead of reopened
    "CONN_HEALTH_CHECKS": True,
}
# Server-side limits (milliseconds) on every connection: a stuck statement or a forgotten transaction must not hold a
# pool's lock for longer than a caller waits. Migrations of large tables raise them for themselves by SET LOCAL.
DATABASE_LIMITS = {
    "lock_timeout": 5_000,
    "statement_timeout": 20_000,
    "idle_in_transaction_session_timeout": 30_000,
}
DATABASES["default"]["OPTIONS"] = {
    "application_name": "computeplatform",
    "connect_timeout": 5,
    "prepare_threshold": 0,  # for `prepared` alone: Django's own cursors bind values in the client
    "options": " ".join(f"-c {name}={milliseconds}" for name, milliseconds in DATABASE_LIMITS.items()),
    **DATABASES["default"].get("OPTIONS", {}),  # what the URL's query says
}

# --- Redis ----------------------------------------------------------------------------------------

REDIS_URL = environment.text("REDIS_URL", "redis://redis-url-is-not-set.invalid:6379/0")

# --- Celery: wakes, nothing else ------------------------------------------------------------------

# Queue names are part of the contract; a task that names another fails loudly: nobody would read that queue.
QUEUES = ("admission", "placement", "reconcile", "delivery", "maintenance")
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_DEFAULT_QUEUE = "maintenance"
CELERY_TASK_QUEUES = [Queue(name, Exchange(name), routing_key=name) for name in QUEUES]
CELERY_TASK_CREATE_MISSING_QUEUES = False
CELERY_TASK_ACKS_LATE = True  # a killed worker's message comes back; tasks claim rows, so twice is harmless
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # a waiting wake-up must not sit behind a long task of another child
CELERY_TASK_IGNORE_RESULT = True  # outcomes are rows; no result backend
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_TIME_LIMIT = 50  # below the visibility timeout, beyond which Redis hands the message out again
CELERY_TASK_SOFT_TIME_LIMIT = 45
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for Redis for as long as it takes
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 5.0  # seconds to finish after the first stop signal; the rest is redelivered
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TIMEZONE = "UTC"
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 60,
    "unacked_restore_interval": 5,  # times throttle 1: the default looks for lost messages only every 100 s
    "unacked_restore_throttle": 1,
    "socket_timeout": 30,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "queue_order_strategy": "priority",
    "priority_steps": list(range(10)),
    "sep": ":",
}
# A publisher inside a request gives up soon: the row is there, and the next tick finds it.
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1, "interval_max": 0.1}

CELERY_BEAT_SCHEDULER = "computeplatform.beat:LeaderScheduler"
# The ticks, written into the schedule's tables when a beat becomes the leader. `every` is the first interval and
# `bounds` what an operator may set it to, in seconds. A tick that still waits when the next one is due has expired.
COMPUTE_BEAT: dict[str, dict[str, Any]] = {
    "admission": {"task": "reservations.admission_tick", "queue": "admission", "every": 1, "bounds": (1, 10)},
    "reconcile": {"task": "reservations.reconcile_tick", "queue": "reconcile", "every": 1, "bounds": (1, 5)},
    "placement": {"task": "reservations.placement_tick", "queue": "placement", "every": 30, "bounds": (5, 30)},
    "queue": {"task": "reservations.queue_tick", "queue": "placement", "every": 1, "bounds": (1, 10)},
    "silence": {"task": "fleet.silence_tick", "queue": "maintenance", "every": 2, "bounds": (1, 10)},
    "events": {"task": "events.stamp", "queue": "delivery", "every": 1, "bounds": (1, 1)},
    "audit": {"task": "iam.seal_tick", "queue": "maintenance", "every": 2, "bounds": (1, 10)},
    "housekeeping": {"task": "iam.housekeeping", "queue": "maintenance", "every": 3600, "bounds": (600, 86_400)},
}
# Ticks that must have run lately for `/readyz` to be good; the names are those that the loops record.
COMPUTE_READY_TICKS = ("admission", "reconcile", "queue", "silence", "events", "audit")
# More than this share of a pool's nodes, and at least so many, last heard of within this time: that is not believed of
# the nodes but of the network between us, and none of them is lost until an operator says so (REC-8).
COMPUTE_MASS_SILENCE = {"percent": 30, "nodes": 3, "within_seconds": 60}
CELERY_BEAT_SYNC_EVERY = 1  # ticks between writes of `last_run_at`: the admin tells the truth, and so does a failover

# --- Ports of the kernel --------------------------------------------------------------------------

COMPUTE_PORTS = {
    "authenticate": "iam.ports.authenticate",
    "screen": "iam.ports.screen",
    "decide": "iam.ports.decide",
}
# And the fleet's: it knows no bookings, and must not lose a node that has some.
FLEET_BOOKINGS_ON_NODE = "reservations.queries.bookings_on_node"
COMPUTE_WAKE_TASKS = {
    "admission": "reservations.admit",
    "placement": "reservations.place",
    "reconcile": "reservations.reconcile",
}

# --- API ------------------------------------------------------------------------------------------

# Proxies whose X-Forwarded-For is believed (see `computeplatform.addresses`).
TRUSTED_PROXIES = environment.networks("TRUSTED_PROXIES")
# How many a minute (API-12). Each is a bucket that holds one minute's worth and refills evenly.
COMPUTE_LIMITS = {
    "key": 60_000,  # calls with one key, sessions that it has assumed included; a key may say another number itself
    "tenant": 120_000,  # calls with all keys of a tenant
    "address": 100,  # credentials that were refused, from one address (IPv6: one /64)
    "operator": 10,  # failed sign-ins to the admin under one user name
    "operator-address": 30,  # failed sign-ins to the admin from one address
}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["computeplatform.api.parsers.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [],  # MethodView names its own; nothing else speaks DRF
    "DEFAULT_PERMISSION_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
    "EXCEPTION_HANDLER": "computeplatform.api.envelope.refuse",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Compute capacity platform",
    "DESCRIPTION": "Reservations of GPU capacity. Every method is a POST with one JSON object in and one out.",
    "VERSION": "0.1.0",
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": ["computeplatform.api.openapi.finish"],
    "ENABLE_DJANGO_DEPLOY_CHECK": False,  # the library serves the page alone; our document has its own tests
}

# --- Browser security -----------------------------------------------------------------------------

HTTPS_ONLY = environment.flag("HTTPS_ONLY", default=True)
SECURE_SSL_REDIRECT = HTTPS_ONLY
# Probes and scrapes come from inside the cluster, without the proxy that ends TLS.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|livez|readyz|metrics)$"]
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS_ONLY else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS_ONLY
SECURE_HSTS_PRELOAD = HTTPS_ONLY
SESSION_COOKIE_SECURE = HTTPS_ONLY
CSRF_COOKIE_SECURE = HTTPS_ONLY
CSRF_TRUSTED_ORIGINS = environment.words("CSRF_TRUSTED_ORIGINS")
if environment.flag("BEHIND_TLS_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 12 * 3600  # an operator's working day
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

# The longest prefix that fits wins. Unfold's Alpine evaluates expressions, hence 'unsafe-eval' for operators' pages
# only; the API pages load their own split script, and everything else is data that no browser may run.
CONTENT_SECURITY_POLICIES = {
    "/": "default-src 'none'; frame-ancestors 'none'",
    "/admin/": (
        "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    ),
    "/api/docs": (
        "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "worker-src 'self' blob:; object-src 'none'; base-uri 'self'; frame-ancestors 'none'"
    ),
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# --- Static files ---------------------------------------------------------------------------------

STATIC_URL = "/static/"
STATIC_ROOT = environment.text("STATIC_ROOT") or None
STATICFILES_DIRS = [path for path in [BASE_DIR / "static"] if path.is_dir()]
WHITENOISE_USE_FINDERS = STATIC_ROOT is None  # a checkout serves what it has; the image has collected

# --- Logs -----------------------------------------------------------------------------------------

LOG_LEVEL = environment.text("LOG_LEVEL", "INFO")
LOGGING_CONFIG = None  # computeplatform.logs does it, in Celery's processes too
DJANGO_STRUCTLOG_CELERY_ENABLED = True
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True  # our middleware above it has accepted or made the id
IPWARE_META_PRECEDENCE_ORDER = ("REMOTE_ADDR",)  # of whom the log speaks: headers say what their sender likes
DJANGO_STRUCTLOG_STATUS_START_LOG_LEVEL = 10  # DEBUG: one line per request, when it has ended
DJANGO_STRUCTLOG_CELERY_TASK_START_LOG_LEVEL = 10  # ticks would be most of the log; failures are lines
DJANGO_STRUCTLOG_CELERY_TASK_SUCCESS_LOG_LEVEL = 10
configure_logging(LOG_LEVEL)

# --- Admin ----------------------------------------------------------------------------------------

LOGIN_REDIRECT_URL = "admin:index"  # unfold's sign-in page forgets where it was asked to go when it is opened by itself
UNFOLD = {
    "SITE_TITLE": "Compute capacity",
    "SITE_HEADER": "Compute capacity",
    "SITE_SUBHEADER": "All times are UTC",
    "SITE_SYMBOL": "memory",
    "SITE_URL": None,
    "LOGIN": {"form": "computeplatform.sign_in.SignInForm"},
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": "computeplatform.home.favicon"}],
    "SHOW_HISTORY": True,
    "DASHBOARD_CALLBACK": "computeplatform.home.dashboard",
    "SIDEBAR": {"navigation": "computeplatform.home.navigation"},
}
