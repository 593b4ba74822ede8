"""Patterns of actions: what a key's scopes and an agent's boundary say (IAM-API §1)."""

from collections.abc import Collection, Iterable


def matches(pattern: str, action: str) -> bool:
    """Whether the action is one of the pattern's: itself, ``*``, ``s:*``, ``s:g:*`` or ``s:*:read``."""
    if pattern in ("*", action):
        return True
    service, group, verb = action.split(":")
    return pattern in (f"{service}:*", f"{service}:{group}:*") or (verb == "read" and pattern == f"{service}:*:read")


def permits(patterns: Iterable[str], action: str) -> bool:
    """Whether one of the patterns matches the action."""
    return any(matches(pattern, action) for pattern in patterns)


def expand(patterns: Iterable[str], actions: Collection[str]) -> frozenset[str]:
    """The actions that the patterns match, of those that exist."""
    wanted = tuple(patterns)
    return frozenset(action for action in actions if permits(wanted, action))


def covers(outer: Iterable[str], inner: Iterable[str], actions: Collection[str]) -> bool:
    """Whether every action of ``inner`` is one of ``outer``. Only ``*`` covers ``*``: it takes in what comes later."""
    outer, inner = tuple(outer), tuple(inner)
    if "*" in outer:
        return True
    return "*" not in inner and expand(inner, actions) <= expand(outer, actions)
