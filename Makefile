# The verbs of this repository, the same for people and for CI. python3 and make are all that a machine needs.
SHELL := /bin/bash
PY := .venv/bin/python
STAMP := .venv/.synced
UV_VERSION := 0.13.9
UV := .venv/bin/uv
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
# Private servers unless DATABASE_URL and REDIS_URL are set; fast, without durability, deleted afterwards.
SERVERS := $(PY) -m computeplatform.servers run --throwaway --state-dir .local/test --
# More words for pytest, as in: make test ARGS="tests/fleet -k lease"
ARGS ?=

.PHONY: setup demo up test bench test-browser test-kubectl test-fire soak test-pg15 check lint types contracts migrations clauses \
        lock lock-check secrets clean

setup: $(STAMP)

# Hash-checked install of exactly what is locked; nothing to do while the lock is unchanged.
$(STAMP): requirements.lock
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed.")'
	@test -x $(PY) || python3 -m venv .venv
	@test "$$($(UV) --version 2>/dev/null | cut -d' ' -f2)" = "$(UV_VERSION)" \
	  || $(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) 2>.venv/pip.log \
	  || { cat .venv/pip.log >&2; exit 1; }
	@$(UV) pip sync --system-certs --quiet --python $(PY) --require-hashes requirements.lock
	@touch $@

up: setup
	@exec $(PY) manage.py up $(ARGS)

demo: setup
	@$(PY) manage.py demo $(ARGS)

test: setup
	@$(SERVERS) $(PY) -m pytest -n 2 --dist loadgroup $(ARGS)

# These two need more on the machine: Chromium (on the path, or named in CHROMIUM), and kubectl.
test-browser: setup
	@$(SERVERS) $(PY) -m pytest -m browser tests/browser $(ARGS)

# Kills, outages and crowds, on whole installations that they break and repair.
test-fire: setup
	@$(SERVERS) $(PY) -m pytest -m fire tests/fire $(ARGS)

# Random stories against a reference model; as many as STORIES says, each a new one.
soak: setup
	@STORIES=$${STORIES:-200} $(SERVERS) $(PY) -m pytest -m soak tests/model $(ARGS)

test-kubectl: setup
	@$(SERVERS) $(PY) -m pytest -m kubectl $(ARGS)

# On the oldest PostgreSQL that is supported, which the machine has to have: migrations, constraints, locks, races.
test-pg15: setup
	@$(PY) -m tests.fire.postgres15 $(SERVERS) $(PY) -m pytest -n 2 --dist loadgroup \
	  $(addprefix tests/,kernel/test_database.py kernel/test_events.py quotas fleet reservations journeys/test_workers.py) $(ARGS)

check: lint types contracts migrations test

lint: setup
	@$(PY) -m ruff format --check --quiet . || { $(PY) -m ruff format --check .; exit 1; }
	@$(PY) -m ruff check --quiet .

types: setup
	@$(PY) -m mypy

contracts: setup
	@mkdir -p .local
	@.venv/bin/lint-imports --no-cache > .local/contracts.log 2>&1 || { cat .local/contracts.log; exit 1; }

migrations: setup
	@$(SERVERS) env SECRET_KEY=check DJANGO_SETTINGS_MODULE=tests.settings $(PY) manage.py makemigrations --check --dry-run

# Medians and ranges of this machine at this moment; nothing here passes or fails.
bench: setup
	@DJANGO_SETTINGS_MODULE=computeplatform.settings $(PY) -m tests.bench $(ARGS)

clauses: setup
	@DATABASE_URL=postgresql://unused/x REDIS_URL=redis://unused $(PY) -m pytest --clauses -m "" --no-header -qqs $(ARGS)

# Both locks in one go: the image installs the runtime part alone, with the same versions. Network needed.
lock: setup
	@$(COMPILE) pyproject.toml -o requirements-runtime.lock
	@$(COMPILE) -c requirements-runtime.lock pyproject.toml --group demo --group dev -o requirements.lock

# What `make lock` would write is what is there. tests/platform/test_lock.py checks as much of it as needs no network.
lock-check: setup
	@mkdir -p .local && cp requirements-runtime.lock requirements.lock .local/
	@$(COMPILE) pyproject.toml -o .local/requirements-runtime.lock
	@$(COMPILE) -c requirements-runtime.lock pyproject.toml --group demo --group dev -o .local/requirements.lock
	@diff requirements-runtime.lock .local/requirements-runtime.lock && diff requirements.lock .local/requirements.lock

# What docker-compose.yml mounts, made once. Readable by the container's user; the directory keeps others out.
secrets:
	@umask 077 && mkdir -p secrets && cd secrets && test ! -e secret_key || { echo "secrets/ is there already"; exit 1; }
	@cd secrets && random() { python3 -c 'import secrets; print(secrets.token_hex(32), end="")'; } && umask 033 \
	  && random > secret_key && random > postgres_password && random > redis_password \
	  && echo -n "postgresql://compute:$$(cat postgres_password)@postgres:5432/compute" > database_url \
	  && echo -n "redis://:$$(cat redis_password)@redis:6379/0" > redis_url

clean:
	rm -rf .venv .local .mypy_cache .ruff_cache .pytest_cache .hypothesis staticfiles
