"""The same stories with people whose agents act for them: grants, sessions, confirmations, and hands on the brake."""

import json
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.model import people
from tests.model.machine import REQUESTS, Platform, whole
from tests.model.people import CREATE, EXTEND, HALF_HOUR, Agent, Delegation, Foreseen, Key, Question, Session, User
from tests.model.reference import BOOKED, LIVE
from tests.support.api import Answer, Api
from tests.support.world import Person, fresh_key

CONFIRM = st.sampled_from([(), (CREATE,), (CREATE, EXTEND), (CREATE, EXTEND)])
# What may happen to a request that is insisted on: anything, or a plot that chance would seldom find.
STEPS = st.sampled_from(
    ["ask", "ask", "elsewhere", "approve", "approve", "refuse", "dearer", "cheaper", "wait", "revoke"]
)
PLOTS = st.sampled_from(
    [
        ["approve", "elsewhere", "approve", "ask"],
        ["approve", "dearer", "ask", "approve", "cheaper", "ask"],
        ["approve", "wait", "wait", "ask"],
        ["wait", "wait", "elsewhere"],
        ["revoke", "elsewhere", "approve", "ask"],
        ["refuse", "elsewhere", "ask"],
    ]
)
# A caller in a session, the id of its user, and what is known of it.
Acting = tuple[Api, str, Session]
ADMINISTRATOR, SPONSOR = "administrator", "sponsor"


class PlatformWithAgents(Platform):
    """Two people of globex, each with an agent; either agent may act for either of them."""

    def __init__(self) -> None:
        super().__init__()
        root = self.world.globex
        self.persons = [self.world.person(root, name, "reserver") for name in ("uma", "rex")]
        self.users = {person.id: User() for person in self.persons}
        self.robots = [self.world.agent(person, f"of-{person.id}") for person in self.persons]
        self.agents: dict[str, Agent] = {}
        # The key that an agent uses now, with its id.
        self.agent_keys: dict[str, tuple[str, Key]] = {}
        for person, robot in zip(self.persons, self.robots, strict=True):
            self.agents[robot.id] = Agent(self.users[person.id])
            [key] = root.api.iam("keys/list", principalId=robot.id).data["keys"]
            self._uses_key(robot, key)
        self.delegations: dict[str, Delegation] = {}
        self.sessions: list[Acting] = []
        self.questions: dict[str, Question] = {}
        # What was asked for in sessions: by user, agent and key the request, the reservation and the last question.
        self.asked: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.price = Decimal(0)
        self.request_id = ""

    # --- Grants and sessions ------------------------------------------------------------------------------------------

    @initialize(confirm=CONFIRM)
    def two_have_agents(self, confirm: tuple[str, ...]) -> None:
        self.grant(0, 0, (CREATE, EXTEND), 2_592_000)
        self.grant(1, 0, confirm, 2_592_000)

    @rule(who=st.integers(0, 1), to=st.integers(0, 1), confirm=CONFIRM, seconds=st.sampled_from([100, 1900, 2_592_000]))
    def grant(self, who: int, to: int, confirm: tuple[str, ...], seconds: int) -> None:
        person, robot = self.persons[who], self.robots[to]
        user, agent = self.users[person.id], self.agents[robot.id]
        scopes = {"scopes": ["compute:*"], "confirm": list(confirm), "expiresInSeconds": seconds}
        answer = person.api.iam("delegations/grant", agentId=robot.id, **scopes)
        if not user.active:
            answer.refused("UNAUTHENTICATED")
        elif agent.suspended_by:
            answer.refused("INVALID_STATE")
        elif agent.sponsor.active or answer.status == 200:
            made = answer.data["delegation"]
            assert made["expiresAt"] == self.clock.now + seconds * 1000
            self.delegations[made["id"]] = Delegation(user, agent, frozenset(confirm), made["expiresAt"])
            self.assume(len(self.delegations) - 1, 3600)

    @rule(which=whole, seconds=st.sampled_from([60, 3600]))
    @precondition(lambda self: self.delegations)
    def assume(self, which: int, seconds: int) -> None:
        delegation_id = list(self.delegations)[which % len(self.delegations)]
        delegation = self.delegations[delegation_id]
        robot = next(one for one in self.robots if self.agents[one.id] is delegation.agent)
        key = self.agent_keys[robot.id][1]
        left = min(delegation.ends_at, key.ends_at) - self.clock.now
        answer = robot.api.iam("delegations/assume", delegationId=delegation_id, expiresInSeconds=seconds)
        if not delegation.agent.works or key.ends_at <= self.clock.now:
            answer.refused("UNAUTHENTICATED")
        elif delegation.status(self.clock.now) != "active":
            answer.refused("INVALID_STATE")
        elif not delegation.user.active:
            assert answer.status != 200
        elif seconds * 1000 > left:
            answer.refused_at("expiresInSeconds")
        else:
            shown = answer.data["session"]
            assert shown["expiresAt"] == self.clock.now + seconds * 1000
            api = Api(answer.data["token"], "globex")
            self.sessions.append((api, shown["userId"], Session(delegation, key, shown["expiresAt"])))

    # --- What is done in sessions -------------------------------------------------------------------------------------

    @rule(which=whole, asked=REQUESTS)
    @precondition(lambda self: self.sessions)
    def ask_in_session(self, which: int, asked: dict[str, Any]) -> None:
        self._create(self._session(which), self._wanted(asked), dies=asked["dies"] == "before")

    @rule(which=whole, again=whole, dies=st.sampled_from([False, False, False, True]))
    @precondition(lambda self: self.sessions and self.asked)
    def ask_again_in_session(self, which: int, again: int, dies: bool) -> None:
        """In any session of the same two, or of others, whose key it is not."""
        key = list(self.asked)[again % len(self.asked)]
        self._create(self._session(which), self.asked[key]["request"], dies=dies)

    @rule(which=whole, asked=REQUESTS, steps=st.lists(STEPS, min_size=2, max_size=7) | PLOTS, of_extend=st.booleans())
    @precondition(lambda self: self.sessions)
    def insist(self, which: int, asked: dict[str, Any], steps: list[str], of_extend: bool) -> None:
        """One request, or one extension, and whatever may happen to it until it is let through."""
        one = self._good_session(which)
        request = self._wanted(asked | {"length": 7200})
        mine = self._booked_of(one[1])
        name = mine[-1] if mine and of_extend else None
        until = self.model.claims[name].shown["endsAt"] + 60_000 if name else 0
        for step in ("ask", *steps):
            latest = list(self.questions)[-1:]
            match step:
                case "ask" | "elsewhere":
                    one = self._session_beside(one) if step == "elsewhere" else one
                    if name:
                        self._extend(one, name, until)
                    else:
                        self._create(one, request, dies=False)
                case "approve" | "refuse" if latest:
                    self._answer(latest[0], approve=step == "approve")
                case "dearer" | "cheaper":
                    self.price_changes(str(max(self.price + (1 if step == "dearer" else -1), Decimal(1))))
                case "wait":
                    self.time_passes(1_000)
                case "revoke":
                    self.revoke(list(self.delegations.values()).index(one[2].delegation))

    def _session_beside(self, one: Acting) -> Acting:
        """Of the same two by another delegation, which is granted where there is none."""
        delegation = one[2].delegation
        for again in (False, True):
            for other in self.sessions:
                mine = other[2].delegation
                same = (mine.user, mine.agent) == (delegation.user, delegation.agent)
                if same and mine is not delegation and other[2].works(self.clock.now):
                    return other
            if not again and delegation.user.active:
                users, agents = list(self.users.values()), list(self.agents.values())
                self.grant(users.index(delegation.user), agents.index(delegation.agent), (CREATE, EXTEND), 2_592_000)
        return one

    def _create(self, one: Acting, asked: dict[str, Any], *, dies: bool) -> None:
        api, user_id, session = one
        robot_id = next(name for name, agent in self.agents.items() if agent is session.delegation.agent)
        key = (user_id, robot_id, asked["idempotencyKey"])
        known = self.asked.get(key, {})
        cost = self.price * asked["devices"]["count"] * asked["nodes"] * asked["durationSeconds"]
        stale = asked.get("startsAt", self.clock.now) < self.clock.now - 60_000
        question = known.get("question")
        foreseen = people.create(question, session, cost=cost, stale=stale, now=self.clock.now)
        outcomes = self._foreseen("globex", asked)
        api.work = (lambda: None) if dies else Api("", "").work
        answer = self._call(api, "create", asked)
        api.work = Api("", "").work
        if not session.works(self.clock.now):
            answer.refused("UNAUTHENTICATED")
            return
        if "reservation" in known:
            assert answer.data["reservation"]["id"] == known["id"]
            return
        if dies and foreseen.code in ("", "CONFIRMATION_REQUIRED") and foreseen.asks is None:
            # Nobody has decided anything.
            self.asked[key] = known | {
                "request": asked,
                "id": answer.refused("UNAVAILABLE")["details"]["reservationId"],
            }
            return
        self._agrees(answer, foreseen, outcomes)
        if foreseen.code == "INVALID_INPUT" and not known:
            return
        known = self.asked.setdefault(key, {"request": asked})
        if answer.status == 200:
            shown = answer.data["reservation"]
            assert known.get("id", shown["id"]) == shown["id"]
            assert shown["createdBy"] == {"principal": user_id, "agent": robot_id}
            known |= {"id": shown["id"], "reservation": True}
        self._take_in(answer, foreseen, session, ("create", *key), cost, known)

    @rule(which=whole, what=whole, by=st.sampled_from([60_000, 600_000]))
    @precondition(lambda self: self.sessions and self.model.claims)
    def extend_in_session(self, which: int, what: int, by: int) -> None:
        one = self._session(which)
        if mine := [n for n in sorted(self.model.claims) if self._creator(n) == one[1]]:
            name = mine[what % len(mine)]
            self._extend(one, name, self.model.claims[name].shown.get("endsAt", self.clock.now) + by)

    def _extend(self, one: Acting, name: str, until: int) -> None:
        api, _, session = one
        self._look()
        before = self.model.claims[name].shown
        answer = self._call(api, "extend", {"reservationId": name, "until": until})
        if not session.works(self.clock.now):
            answer.refused("UNAUTHENTICATED")
            return
        if before["state"] not in BOOKED:
            answer.refused("INVALID_STATE")
            return
        if answer.status != 200 and answer.error["code"] == "INVALID_STATE":
            # It has lapsed or ended, and no tick has come by yet.
            return
        if until <= before["endsAt"]:
            assert not answer.data["extended"]
            return
        about = ("extend", name, until)
        asked_before = [q for q in self.questions.values() if (q.delegation, q.about) == (session.delegation, about)]
        cost = Decimal(until - before["startsAt"])
        question = asked_before[-1] if asked_before else None
        foreseen = people.extend(question, session, cost=cost, now=self.clock.now)
        self._agrees(answer, foreseen, {"extended", "in the way"})
        if answer.status == 200 and answer.data["extended"]:
            assert answer.data["reservation"]["endsAt"] == until
            self.model.extended(answer.data["reservation"])
        self._take_in(answer, foreseen, session, about, cost, {"id": name})

    def _agrees(self, answer: Answer, foreseen: Foreseen, outcomes: set[str]) -> None:
        """Code, and the reasons that an administrator sees."""
        if foreseen.code:
            answer.refused(foreseen.code)
        elif answer.status == 200 and "extended" in answer.data:
            got = "extended" if answer.data["extended"] else "in the way"
            assert got in outcomes
        else:
            got = answer.data["reservation"]["state"] if answer.status == 200 else answer.error["code"]
            assert got in outcomes, (got, outcomes)
        entries = self.world.globex.api.iam("decisions/list", requestId=self.request_id).data["decisions"]
        reasons = [entry["reason"] for entry in entries]
        wanted = [[reason] if reason else [] for reason in foreseen.reasons] or [[]]
        assert reasons in wanted, (reasons, foreseen)

    def _take_in(
        self, answer: Answer, foreseen: Foreseen, session: Session, about: tuple[object, ...], cost: Decimal,
        known: dict[str, Any],
    ) -> None:  # fmt: skip
        """What the call has done to questions."""
        if foreseen.uses:
            foreseen.uses.written = "used"
        if foreseen.voids:
            foreseen.voids.written = "void"
        if foreseen.code != "CONFIRMATION_REQUIRED":
            return
        details = answer.error["details"]
        assert known.setdefault("id", details["reservationId"]) == details["reservationId"]
        if foreseen.asks:
            assert self.questions[details["confirmationId"]] is foreseen.asks
        else:
            assert details["confirmationId"] not in self.questions
            asked = Question(session.delegation, about, cost, self.clock.now + HALF_HOUR)
            known["question"] = self.questions[details["confirmationId"]] = asked
        assert details["expiresAt"] == self.questions[details["confirmationId"]].expires_at

    # --- What people say ----------------------------------------------------------------------------------------------

    @rule(which=whole, approve=st.sampled_from([True, True, True, False]), latest=st.booleans())
    @precondition(lambda self: self.questions)
    def answer(self, which: int, approve: bool, latest: bool) -> None:
        names = list(self.questions)
        self._answer(names[-1] if latest else names[which % len(names)], approve=approve)

    def _answer(self, name: str, *, approve: bool) -> None:
        question = self.questions[name]
        user = question.delegation.user
        person = next(one for one in self.persons if self.users[one.id] is user)
        other = next(one for one in self.persons if one is not person)
        said = {"confirmationId": name, "approve": approve}
        wrong = other.api.iam("confirmations/decide", **said)
        wrong.refused("ACCESS_DENIED" if self.users[other.id].active else "UNAUTHENTICATED")
        answer = person.api.iam("confirmations/decide", **said)
        state = question.state(self.clock.now)
        if not user.active:
            answer.refused("UNAUTHENTICATED")
        elif state != "pending":
            answer.refused("INVALID_STATE", reason=state if state in ("lapsed", "void") else "decided")
        else:
            question.written = "approved" if approve else "refused"
            question.expires_at = self.clock.now + HALF_HOUR if approve else question.expires_at
            assert answer.data["confirmation"]["state"] == question.written

    # One rule, as calls in sessions are: of many brakes few stories would get anywhere.
    @rule(which=whole, what=st.sampled_from(["revoke", "brake", "brake", "deactivate", "rotate"]), data=st.data())
    @precondition(lambda self: self.delegations)
    def stop(self, which: int, what: str, data: st.DataObject) -> None:
        match what:
            case "revoke":
                self.revoke(which)
            case "brake":
                act = data.draw(st.sampled_from(["suspend", "end", "resume", "resume"]))
                self.brake(which % 2, act, by_root=data.draw(st.booleans()))
            case "deactivate":
                self.deactivate(which % 2, data.draw(st.sampled_from(["suspend", "resume", "resume"])))
            case "rotate":
                self.rotate(which % 2, data.draw(st.sampled_from([0, 120, 3600])))

    def revoke(self, which: int) -> None:
        name = list(self.delegations)[which % len(self.delegations)]
        delegation = self.delegations[name]
        answer = self.world.globex.api.iam("delegations/revoke", delegationId=name)
        if delegation.revoked_at is None:
            delegation.revoked_at = self.clock.now
        assert answer.data["delegation"]["status"] == delegation.status(self.clock.now)

    def brake(self, which: int, what: str, *, by_root: bool) -> None:
        robot, sponsor = self.robots[which], self.persons[which]
        agent = self.agents[robot.id]
        caller = self.world.globex if by_root else sponsor
        if what == "resume":
            answer = caller.api.iam("agents/resume", agentId=robot.id)
        else:
            answer = caller.api.iam("agents/suspend", agentId=robot.id, endReservations=what == "end")
        if not by_root and not agent.sponsor.active:
            answer.refused("UNAUTHENTICATED")
        elif what == "resume" and agent.suspended_by == ADMINISTRATOR and not by_root:
            answer.refused("ACCESS_DENIED")
        elif what == "resume":
            agent.suspended_by, agent.ending = "", False
        else:
            if agent.suspended_by != ADMINISTRATOR:
                agent.suspended_by = ADMINISTRATOR if by_root else SPONSOR
            agent.ending = agent.ending or what == "end"
            agent.ended_once = agent.ended_once or what == "end"
            self._kill(lambda session: session.delegation.agent is agent)

    def deactivate(self, which: int, what: str) -> None:
        person = self.persons[which]
        user = self.users[person.id]
        assert self.world.globex.api.iam(f"principals/{what}", principalId=person.id).data
        if what == "suspend":
            self._kill(lambda session: session.delegation.user is user)
        user.active = what == "resume"

    def rotate(self, which: int, overlap: int) -> None:
        robot, now = self.robots[which], self.clock.now
        name, key = self.agent_keys[robot.id]
        answer = self.world.globex.api.iam("keys/rotate", keyId=name, overlapSeconds=overlap)
        if self.agents[robot.id].suspended_by:
            answer.refused("INVALID_STATE")
            return
        key.ends_at = now + overlap * 1000
        robot.api = Api(answer.data["token"], "globex")
        self._uses_key(robot, answer.data["key"])

    @rule(price=st.sampled_from([None, "1.00", "2.00", "3.00"]))
    def price_changes(self, price: str | None) -> None:
        per_hour = price and {"perDeviceHour": price, "currency": "EUR"}
        assert self.world.acme.api("pools/update", poolId=self.pool, policy={"price": per_hour}).data
        self.price = Decimal(price or 0)

    @rule(which=whole, method=st.sampled_from(["get", "cancel", "release", "renew", "extend"]))
    @precondition(lambda self: self.asked)
    def touch_a_draft(self, which: int, method: str) -> None:
        """What is not admitted is not there to be read or cancelled, and in no state to be changed; or denied."""
        known = list(self.asked.values())[which % len(self.asked)]
        if "reservation" in known or "id" not in known:
            return
        more: dict[str, Any] = {"by": 60_000} if method == "extend" else {}
        answer = self.world.globex.api(f"reservations/{method}", reservationId=known["id"], **more)
        if method in ("get", "cancel"):
            answer.refused("NOT_FOUND")
        else:
            # Denied drafts are not found by any method.
            assert answer.error["code"] in ("INVALID_STATE", "NOT_FOUND")

    # --- What holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def people_are_as_they_were_told(self) -> None:
        root, now = self.world.globex.api, self.clock.now
        shown = root.iam("confirmations/list", scope="all", limit=200).data["confirmations"]
        assert {one["id"]: one["state"] for one in shown} == {k: q.state(now) for k, q in self.questions.items()}
        shown = [root.iam("delegations/list", userId=one.id, limit=200).data["delegations"] for one in self.persons]
        stati = {one["id"]: one["status"] for page in shown for one in page}
        assert stati == {k: d.status(now) for k, d in self.delegations.items()}
        for one in root.iam("agents/list").data["agents"]:
            assert one.get("suspendedBy", "") == self.agents[one["id"]].suspended_by
        for name, claim in self.model.claims.items():
            if claim.shown.get("reason") == "agent-suspended":
                assert self.agents[claim.shown["createdBy"]["agent"]].ended_once, name

    def _nothing_is_overdue(self) -> None:
        super()._nothing_is_overdue()
        for name in self.model.in_state(*LIVE):
            agent = self.agents.get(self.model.claims[name].shown["createdBy"].get("agent", ""))
            assert agent is None or not agent.ending, f"{name} lives on, and its agent was stopped with all it has"

    # --- Helpers ------------------------------------------------------------------------------------------------------

    def _session(self, which: int) -> Acting:
        """Mostly one that works."""
        good = [one for one in self.sessions if one[2].works(self.clock.now)]
        among = good if good and which % 4 else self.sessions
        return among[which % len(among)]

    def _call(self, api: Api, method: str, fields: dict[str, Any]) -> Answer:
        """With a request id that its decisions can be found by."""
        self.request_id = fresh_key()
        body = json.dumps({"tenantId": "globex"} | fields)
        return api.raw(f"/api/compute/reservations/{method}", body, x_request_id=self.request_id)

    def _wanted(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._request(**{k: v for k, v in asked.items() if k != "dies"} | {"of_globex": True})

    def _booked_of(self, user_id: str) -> list[str]:
        self._look()
        return [name for name in self.model.in_state(*BOOKED) if self._creator(name) == user_id]

    def _good_session(self, which: int) -> Acting:
        """One that works; where none does everybody is resumed, and somebody grants another."""
        if not any(one[2].works(self.clock.now) for one in self.sessions):
            for place in range(2):
                self.deactivate(place, "resume")
                self.brake(place, "resume", by_root=True)
            self.grant(which % 2, which // 2 % 2, (CREATE, EXTEND), 2_592_000)
        good = [one for one in self.sessions if one[2].works(self.clock.now)]
        return good[which % len(good)]

    def _kill(self, of: Any) -> None:
        for _, _, session in self.sessions:
            session.dead = session.dead or of(session)

    def _uses_key(self, robot: Person, key: dict[str, Any]) -> None:
        known = Key(key["expiresAt"])
        self.agents[robot.id].keys.append(known)
        self.agent_keys[robot.id] = (key["id"], known)

    def _creator(self, name: str) -> str:
        return str(self.model.claims[name].shown["createdBy"]["principal"])

    def _readers(self) -> list[tuple[Api, str]]:
        return [(self.world.acme.api, "all"), (self.world.globex.api, "all")]

    def _owner(self, name: str) -> Api:
        """Whoever made it, unless they are locked out."""
        person = next((one for one in self.persons if one.id == self._creator(name)), None)
        if person is None:
            return super()._owner(name)
        return person.api if self.users[person.id].active else self.world.globex.api
