"""Operators' acts in the admin, of this app and of those above it: all are decided on the fleet (docs/adr/0010)."""

from computeplatform.admin_tools import Operating
from computeplatform.api.calls import Actor
from fleet.contracts import ADMINISTER_FLEET, FLEET
from iam.operations.operators import OperatorAct, authorise


def authorise_act(kind: str, object_id: str, *, tenant_id: str, by: Operating, method: str) -> Actor:
    """Decide and record an act on an object of a tenant; returns whom the operation acts for.

    ``kind``: as in ``compute-<kind>``. A principal of the platform is nobody in another tenant, hence the fleet.
    Raises OperatorMayNotAct and AccessDenied.
    """
    act = OperatorAct(
        operator_id=by.operator_id,
        method=method,
        subject_type=f"compute-{kind}",
        subject_id=object_id,
        tenant_id=tenant_id,
        reason=by.reason,
    )
    return authorise(act, ADMINISTER_FLEET, FLEET, context=by.context)
