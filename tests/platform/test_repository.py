"""Rules about the repository itself: what is locked, how big things may get, who may look into whom."""

import ast
import re
import tomllib
from importlib import import_module
from pathlib import Path

import grimp
import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from tests import crashing

BASE_DIR = Path(__file__).resolve().parents[2]
APPS = ("iam", "quotas", "fleet", "reservations", "releases")
SOURCES = [
    path
    for folder in ("computeplatform", "tests", *APPS)
    for path in sorted((BASE_DIR / folder).rglob("*.py"))
    if "migrations" not in path.parts
]
FILE_LINES, TEST_FILE_LINES, FUNCTION_LINES = 400, 600, 60
# Rooms that other apps do not enter; what they need comes through operations, queries, contracts, errors and events.
PRIVATE_ROOMS = ("models", "domain", "adapters", "reconcilers", "api", "tasks", "admin")


def pins(lock: str) -> dict[str, str]:
    """Name -> version of a lock file."""
    found = re.findall(r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", (BASE_DIR / lock).read_text(), flags=re.MULTILINE)
    return dict(found)


def required() -> dict[str, list[Requirement]]:
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())
    groups = {"runtime": project["project"]["dependencies"], **project["dependency-groups"]}
    return {group: [Requirement(line) for line in lines] for group, lines in groups.items()}


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-runtime.lock"])
def test_a_lock_is_all_hashes_and_no_address(lock):
    text = (BASE_DIR / lock).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=[a-z0-9])", text.strip())
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize(
    ("lock", "groups"),
    [("requirements.lock", ("runtime", "demo", "dev")), ("requirements-runtime.lock", ("runtime",))],
)
def test_what_pyproject_asks_for_is_what_is_locked(lock, groups):
    locked = pins(lock)
    for requirement in (requirement for group in groups for requirement in required()[group]):
        version = locked.get(requirement.name.lower())
        assert version, f"{requirement.name} is not in {lock}: run `make lock`"
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {lock} has {version}"


def test_the_image_runs_the_versions_that_are_tested():
    everything = pins("requirements.lock")
    assert pins("requirements-runtime.lock").items() <= everything.items()
    assert default_environment()["python_version"] >= "3.11"


def long_functions(tree: ast.AST) -> list[tuple[str, int]]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions]
    return [(name, lines) for name, lines in lengths if lines > FUNCTION_LINES]


def test_files_and_functions_stay_readable():
    too_long = []
    for path in SOURCES:
        text, name = path.read_text(), str(path.relative_to(BASE_DIR))
        if text.count("\n") > (TEST_FILE_LINES if name.startswith("tests/") else FILE_LINES):
            too_long.append((name, text.count("\n")))
        too_long += [(f"{name}: {function}", lines) for function, lines in long_functions(ast.parse(text))]
    assert too_long == []


def test_apps_reach_each_other_through_their_doors():
    graph = grimp.build_graph(*APPS)
    broken = [
        f"{importer} imports {imported}"
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if imported.split(".")[0] != importer.split(".")[0] and set(imported.split(".")[1:2]) & set(PRIVATE_ROOMS)
    ]
    assert sorted(broken) == []


def test_the_steps_at_which_workers_are_killed_are_there():
    missing = [
        f"{module}.{function}"
        for module, functions in crashing.STEPS.items()
        for function in functions
        if not hasattr(import_module(module), function)
    ]
    assert missing == []
