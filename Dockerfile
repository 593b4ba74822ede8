# One image for every role; the command chooses: the web process (default), `celery ... worker`, `celery ... beat`, `migrate`.

FROM python:3.11-slim-bookworm AS packages
WORKDIR /build
COPY requirements-runtime.lock .
# Wheels only, each checked against its hash: nothing is compiled, and nothing that is not locked gets in.
RUN python -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes \
      -r requirements-runtime.lock

FROM python:3.11-slim-bookworm
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=computeplatform.settings \
    STATIC_ROOT=/srv/static \
    REMAP_SIGTERM=SIGQUIT
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin compute
WORKDIR /srv/app
COPY --from=packages /opt/venv /opt/venv
COPY manage.py ./
COPY computeplatform computeplatform
COPY iam iam
COPY quotas quotas
COPY fleet fleet
COPY reservations reservations
COPY releases releases
RUN python -m compileall -q . && python manage.py collectstatic --no-input --verbosity 0
USER 10001
EXPOSE 8000
CMD ["granian", "--interface", "asgi", "--loop", "uvloop", "--no-ws", "--host", "0.0.0.0", "--port", "8000", \
     "--log-level", "warning", "--workers-kill-timeout", "12", "computeplatform.asgi:application"]
