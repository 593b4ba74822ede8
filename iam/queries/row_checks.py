"""Deciding on many things in one call, unaudited: the rows of a list (LST-2)."""

from computeplatform.api.calls import CallContext, Caller, Resource
from iam.queries.compiled import compiled_of
from iam.queries.credentials import subject_of
from iam.queries.judging import judge_live


class RowChecks:
    """What the caller may do to each of many resources of one type and of its own tenant, at one moment.

    Those that the tenant's policies cannot tell apart are decided on once. Policies look at the values of
    ``attributes``, and may single out resources with an id among ``named``.
    """

    def __init__(self, caller: Caller, action: str, *, context: CallContext) -> None:
        self._subject, self._action, self._context = subject_of(caller), action, context
        self._known: dict[tuple[object, ...], bool] = {}
        self.attributes: tuple[str, ...] = ()
        self.named: frozenset[str] = frozenset()
        try:
            reads = compiled_of(self._subject.tenant_id, self._subject.policy_revision).reads_of(action)
        except ValueError:
            return  # stored policies that do not parse: the answer is no for all, and logged as a fault
        self.attributes = tuple(sorted(reads.attributes))
        self.named = reads.named

    def permits(self, resource: Resource) -> bool:
        """Whether policies and every ceiling permit it."""
        name = resource.id if resource.id in self.named else ""
        signature = (name, *(resource.attributes.get(attribute) for attribute in self.attributes))
        known = self._known.get(signature)
        if known is None:
            judgement = judge_live(self._subject, self._action, resource, self._context)
            known = self._known[signature] = judgement.allowed
        return known
