"""A small model of reservations: what must be true of what the API shows, whatever was called, ticked or killed.

It knows no placement and no schedule. It remembers what was shown before and what callers were promised, and says what
of the next look contradicts that.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

BOOKED = ("placed", "binding", "active")
TERMINAL = ("released", "cancelled")
LIVE = ("pending", *BOOKED)
# What a reservation may be at a later look; several moves may lie between two looks.
LATER = {
    "pending": {*LIVE, *TERMINAL},
    "placed": {*LIVE, *TERMINAL},
    "binding": {*LIVE, *TERMINAL},
    "active": {"active", "released"},
    "released": {"released"},
    "cancelled": {"cancelled"},
}
Shown = Mapping[str, Any]


@dataclass
class Claim:
    """One reservation as callers know it. ``promised``: the end of its window, as it was answered last."""

    shown: Shown
    promised: int | None = None
    # Time was lost by our own fault since: deadlines have moved by an amount that callers are not told.
    moved: bool = False
    lease: int | None = None


@dataclass
class Reference:
    """Everything that was ever answered."""

    claims: dict[str, Claim] = field(default_factory=dict)

    def live(self, tenant_id: str) -> list[Shown]:
        """The tenant's reservations that are charged."""
        shown = (claim.shown for claim in self.claims.values())
        return [one for one in shown if one["tenantId"] == tenant_id and one["state"] in LIVE]

    def used(self, tenant_id: str) -> int:
        """The devices that the tenant is charged for (REC-5)."""
        return sum(one["devices"]["count"] * one["nodes"] for one in self.live(tenant_id))

    def in_state(self, *states: str) -> list[str]:
        """Ids, oldest first."""
        return [name for name, claim in self.claims.items() if claim.shown["state"] in states]

    # --- What callers are answered ------------------------------------------------------------------------------------

    def extended(self, shown: Shown) -> None:
        """An extend was answered ``extended: true``."""
        self.claims[shown["id"]].promised = shown["endsAt"]

    def renewed(self, shown: Shown, *, now: int) -> None:
        """A renew was answered."""
        claim = self.claims[shown["id"]]
        claim.lease, claim.moved = now + shown["leaseSeconds"] * 1000, False

    def lost_time(self) -> None:
        """Our own service was away."""
        for claim in self.claims.values():
            claim.moved = True

    def look(self, seen: Sequence[Shown], *, now: int) -> Iterator[str]:
        """Take in what the lists show now; yields what cannot be."""
        missing = self.claims.keys() - {one["id"] for one in seen}
        yield from (f"{name} is shown no more" for name in sorted(missing))
        for one in seen:
            yield from (f"{one['id']}: {fault}" for fault in self._see(one, now))
        yield from self._double_bookings()

    def overdue(self, *, now: int) -> Iterator[str]:
        """What a tick should have done by now and has not."""
        kept = any(_has(claim.shown, "DevicesHeld") for claim in self.claims.values())
        for name, claim in self.claims.items():
            one, lease = claim.shown, claim.lease
            if one["state"] not in BOOKED:
                continue
            if one["endsAt"] <= now:
                yield f"{name} goes on after its end"
            if lease is not None and not claim.moved and lease + LAPSES_WITHIN <= now:
                yield f"{name} goes on without a lease"
            if one["state"] == "placed" and one["startsAt"] <= now and not kept:
                yield f"{name} has not started"

    def _see(self, one: Shown, now: int) -> Iterator[str]:
        claim = self.claims.get(one["id"])
        if claim is None:
            claim = self.claims[one["id"]] = Claim(one)
        before, state = claim.shown, one["state"]
        if state not in LATER[before["state"]]:
            yield f"was {before['state']} and is {state}"
        if before["state"] in TERMINAL and before["version"] == one["version"] and before != one:
            yield f"has changed without a new version: {before} {one}"
        if one["version"] < before["version"]:
            yield "its version fell"
        if state != before["state"] and one["version"] <= before["version"]:
            yield f"{before['state']} became {state} without a new version"
        yield from self._window(claim, one, now)
        claim.shown = one

    def _window(self, claim: Claim, one: Shown, now: int) -> Iterator[str]:
        state, before = one["state"], claim.shown
        anew = claim.promised is None or one.get("startsAt") != before.get("startsAt")
        if state in BOOKED:
            if anew:
                claim.promised = one["endsAt"]
                yield from self._length(one)
                claim.lease = one.get("leaseExpiresAt")
            if one["endsAt"] != claim.promised:
                if not _has(one, "PreemptionScheduled") or one["endsAt"] > (claim.promised or 0):
                    yield f"ends at {one['endsAt']}, promised was {claim.promised}"
                claim.promised = one["endsAt"]
        if state in ("binding", "active") and one["startsAt"] > now:
            yield "runs before its start"
        lease = one.get("leaseSeconds", 0) * 1000
        if "leaseExpiresAt" in one and one["leaseExpiresAt"] > now + lease:
            yield f"its lease is good until {one['leaseExpiresAt']}"
        if state == "pending":
            claim.promised = claim.lease = None
        if state == "released" and before["state"] != "released":
            yield from self._released(claim, one)

    def _length(self, one: Shown) -> Iterator[str]:
        asked = one["requested"]
        if "durationSeconds" in asked and one["endsAt"] - one["startsAt"] != asked["durationSeconds"] * 1000:
            yield f"its window is {one['endsAt'] - one['startsAt']} ms long"
        if one["startsAt"] < asked.get("startsAt", 0) and asked["startsAt"] >= one["createdAt"]:
            yield "starts before its time"

    def _released(self, claim: Claim, one: Shown) -> Iterator[str]:
        if one["reason"] == "ended" and claim.promised is not None and one["releasedAt"] != claim.promised:
            yield f"ended at {one['releasedAt']}, promised was {claim.promised}"
        known = claim.lease is not None and not claim.moved
        if one["reason"] == "lease-lapsed" and known and one["releasedAt"] != claim.lease:
            yield f"lapsed at {one['releasedAt']}, its lease was good until {claim.lease}"

    # --- Devices ------------------------------------------------------------------------------------------------------

    def holds(self) -> Iterator[tuple[str, int, int, int, Shown]]:
        """What is booked: ``(node, position, from, to, reservation)``; what is held is, for as long as it is."""
        for claim in self.claims.values():
            one = claim.shown
            held = one["state"] in TERMINAL and _has(one, "DevicesHeld")
            if one["state"] not in BOOKED and not held:
                continue
            for part in one.get("placement", ()):
                for device in part["devices"]:
                    yield part["nodeId"], device["position"], one["startsAt"], FAR if held else one["endsAt"], one

    def _double_bookings(self) -> Iterator[str]:
        by_device: dict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
        for node, position, start, end, one in self.holds():
            if one["state"] in BOOKED:
                by_device[node, position].append((start, end, one["id"]))
        for device, bookings in by_device.items():
            bookings.sort()
            for (_, end, first), (start, _, second) in pairwise(bookings):
                if start < end:
                    yield f"{first} and {second} both have {device}"

    def fits(self, asked: Shown, nodes: Mapping[str, int], *, now: int, without_spot: bool = False) -> bool:
        """Whether ``nodes`` (id to bookable positions, as bits) have room for what was asked if it began now."""
        begins = max(now, asked["requested"].get("startsAt", now))
        ends = asked["requested"].get("endsAt", begins + asked["requested"].get("durationSeconds", 0) * 1000)
        free = dict(nodes)
        for node, position, start, end, one in self.holds():
            yields = without_spot and one["spot"] and one["state"] in BOOKED
            if node in free and start < ends and begins < end and not yields:
                free[node] &= ~(1 << position)
        enough = sum(mask.bit_count() >= asked["devices"]["count"] for mask in free.values())
        return ends > begins and enough >= asked["nodes"]


FAR = 1 << 60
LAPSES_WITHIN = 10_000


def _has(one: Shown, condition: str) -> bool:
    return any(c["type"] == condition for c in one["conditions"])
