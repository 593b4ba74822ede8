"""The story: two tenants share a pool, and what can happen to a request for GPUs happens once.

Every sentence is checked while it is told; what differs raises `Deviation`, or `Refused` where nobody was to be
refused. The story makes its own tenants, and needs three free nodes or more in the pool. Nothing in it hangs on how
fast anything is: it waits for what is to happen, and each chapter but the first ones gives back what it took.
"""

from collections.abc import Callable, Sequence

from computeplatform.demo.client import Api, Caller, Deviation
from computeplatform.demo.story import asking, beginning, changing, delegating, ending, planning
from computeplatform.demo.story.scene import FEWEST_NODES, Platform, Scene, free_ground
from computeplatform.demo.telling import Teller

__all__ = ["FEWEST_NODES", "Platform", "tell"]

# In order: each finds what it needs in what the ones before have left.
CHAPTERS: Sequence[Callable[[Scene], None]] = (
    beginning.two_tenants,
    beginning.an_offer,
    beginning.one_becomes_active,
    beginning.the_same_request_again,
    asking.one_waits_and_is_woken,
    asking.one_is_over_quota,
    asking.one_is_against_policy,
    asking.one_takes_more_of_the_host,
    changing.one_is_extended,
    changing.one_has_a_lease,
    planning.a_promise_is_kept,
    planning.spot_work_makes_way,
    planning.a_node_is_drained,
    delegating.an_agent_asks_first,
    ending.everything_is_given_back,
    ending.what_happened,
)


def tell(api: Api, platform: Platform, teller: Teller, *, nodes: int = FEWEST_NODES) -> None:
    """Tell it to the end, or raise Deviation or Refused. ``nodes``: how many must be there before it begins."""
    operator = Caller(api, "platform", platform.tenant_id, platform.token)
    scene = Scene(api, teller, operator, free_ground(operator, platform.pool_id, nodes))
    try:
        for chapter in CHAPTERS:
            chapter(scene)
    except (LookupError, ValueError) as error:
        raise Deviation(f"an answer has not the form that the story expects: {error!r}") from error
    finally:
        scene.give_back()
