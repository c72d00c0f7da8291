"""The budgets of a turn: which ones its calls are charged to, what people read when a cap stops a call, what owners are
told.

`agent_core` calls the hook before each call that a budget applies to. Owners are told of 80 and of 100 percent once in
each period, by a mailbox update of the agent whose call it was and by a system event.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Model

from agent_core import connections
from agent_core.exceptions import CapReached, ModelUnavailable
from agent_core.spending import Account, Amount, Budget, Settle, usd_text
from sessions_app.connections.edit import agents_using
from sessions_app.deliveries.system_events import EventName, report_limit
from sessions_app.failures import OUTAGES, log_failure
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.metrics import Counted, count
from sessions_app.models import (
    PRIMARY_KEY,
    Agent,
    Connection,
    Priority,
    Session,
    Spending,
    Turn,
    UserLimits,
)
from sessions_app.models.spending import REACHED
from sessions_app.postgres.rows import release_connection
from sessions_app.spending import accounts
from sessions_app.spending.accounts import CapState
from sessions_app.spending.caps import (
    anew,
    budget_of,
    cap_rows,
    cap_text,
    micro_of,
    refusal,
    subject_of,
    words_of,
)

MOST_TOLD = 500  # owners of agents that use one connection of the server
NAMESPACE = uuid.UUID("0a6dd9a6-2b0c-4e39-8a1e-6a3c1f4f5d52")  # for the ids of updates
UNREADABLE = "The caps of this call could not be read from the database"
_MODELS: dict[str, type[Model]] = {}  # which store the caps, by scope
_EVENTS = {True: EventName.BUDGET_REACHED, False: EventName.BUDGET_NEAR}

log = structlog.get_logger(__name__)


def account_of(turn: Turn, agent: Agent, user_limits: Mapping[str, Any]) -> Account:
    """Return what a turn's calls are charged to: its agent, its user and the automations whose slots it runs."""
    given = turn.input
    names = {task["id"]: task["title"] for task in given.tasks} or {
        given.automation_id: given.automation_name
    }
    return Account(
        turn=turn.pk,
        claim=str(turn.claim),
        runs=given.runs or (turn.origin_run or f"turn:{turn.pk}",),
        agent=agent.pk,
        owner=agent.owner_id,
        automations=tuple(filter(None, names)),
        budgets=budgets_of(agent, user_limits, names, given.caps),
    )


def budgets_of(
    agent: Agent, user_limits: Mapping[str, Any], names: Mapping[str, str], caps: Mapping[str, Any]
) -> tuple[Budget, ...]:
    """Return the budgets of an agent, its user and these automations. `names`, `caps`: by the automation's id."""
    zone = agent.timezone
    jobs = (budget_of("automation", each, caps[each], name=names.get(each, each), zone=zone) for each in caps)
    of_agent = budget_of("agent", agent.pk, agent.limits, name=agent.name, zone=zone)
    return (of_agent, budget_of("user", agent.owner_id, user_limits), *jobs)


def register_budgets() -> None:
    """Have model calls count against caps."""
    connections.hooks.reserve = _reserve
    for scope, model in (("agent", Agent), ("connection", Connection), ("user", UserLimits)):
        register_caps(scope, model)


def register_caps(scope: str, model: type[Model]) -> None:
    """Say which model stores the caps of a scope, as `limits`."""
    _MODELS[scope] = model


def settle_abandoned() -> int:
    """Settle the reservations of dead workers: all that was reserved counts as spent. Returns their number."""
    found = accounts.abandoned()
    for reservation in found:
        _settle(reservation, None)
    return len(found)


def _reserve(account: Account | None, budgets: tuple[Budget, ...], amount: Amount) -> Settle:
    runs = account.runs if account else (f"call:{uuid.uuid4()}",)
    made_by = {"agent": account and account.agent, "turn": account and account.turn, "run": runs[0]}
    caps = [made_by | row for row in cap_rows(budgets, datetime.now(UTC), runs)]
    try:
        made = accounts.reserve(account, amount, caps)
        if isinstance(made, CapState) and not made.is_held:
            count(Counted.CAP_REFUSAL, scope=made.cap["scope"], period=made.cap["period"])
            _note_refusal(account, made)
    except (OperationalError, InterfaceError) as error:
        away = ModelUnavailable(type(error).__name__, reason=UNREADABLE)
        away.is_free = True
        raise away from error
    finally:
        release_connection()
    if isinstance(made, CapState):
        cap = None if made.is_held else refusal(made.cap, amount)
        raise CapReached(_refusal_text(made), is_held=made.is_held, cap=cap)
    return partial(_settle_call, made)


def _settle_call(reservation: int, used: Amount | None) -> None:
    """Settle after a call. If the database is away, the reservation stands until the sweep settles it."""
    try:
        _settle(reservation, used)
    except (OperationalError, InterfaceError):
        log.warning("not_settled", reservation=reservation)
    finally:
        release_connection()


def _settle(reservation: int, used: Amount | None) -> None:
    for crossed in accounts.settle(reservation, used):
        _try_to_tell(crossed)


def _note_refusal(account: Account | None, refused: CapState) -> None:
    """A call does not fit any more in this period: tell the owner, and have firing skip the automation.

    Not if the cap was changed after the turn had read it.
    """
    if not refused.cap["ends_at"] or not _still_stands(refused.cap):
        return
    _try_to_tell(refused)
    if account is not None and account.automations:
        accounts.mark_stopped(account.agent, account.automations, refused.cap["ends_at"])


def _still_stands(cap: Mapping[str, Any]) -> bool:
    stored = _MODELS[cap["scope"]]._default_manager.filter(pk=cap["subject"])  # noqa: SLF001 - Django's name
    limits = stored.values_list("limits", flat=True).first() or {}
    now = limits.get(cap["period"], {})
    return (now.get("tokens"), micro_of(now.get("usd"))) == (cap["tokens"], cap["micro_usd"])


def _refusal_text(refused: CapState) -> str:
    if not refused.is_held:
        return cap_text(refused.cap, refused.needs, _spent(refused))
    whose = subject_of(refused.cap)
    return f"Calls that have not ended hold what is left of the cap of {whose}.{_spent_text(refused)}"


def _spent(state: CapState) -> Amount:
    return Amount(tokens=state.tokens, micro_usd=state.micro_usd)


def _spent_text(state: CapState) -> str:
    words = words_of(state.cap, state.tokens, state.micro_usd)
    return "" if state.cap["is_private"] else f" {words} spent."


def _try_to_tell(state: CapState) -> None:
    """Tell the owners; what fails is tried again with the next call. It costs no answer, and no refusal its reason."""
    try:
        _tell(state)
    except Exception as error:  # noqa: BLE001 - the call has been made, and paid for
        log_failure(log, "cap_not_told", error, OUTAGES, key=state.cap["key"])


def _tell(state: CapState) -> None:
    """Tell the owners of agents, unless that was told already.

    The owner of the agent whose call it was is told last: what a crash kept from being told is told at the next call.
    """
    cap = state.cap
    news = Spending.objects.filter(pk=cap["key"], told__lt=state.percent)
    # the test of a connection has no agent: the next call of one tells it
    if not cap["agent"] or not news.exists():
        return
    for agent in _others(cap):
        _tell_owner(agent, replace(state, cap={**cap, "turn": None, "run": None}))
    with transaction.atomic():
        if news.update(told=state.percent):
            log.info("cap_told", key=cap["key"], percent=state.percent)
            _tell_owner(cap["agent"], state)


def _others(cap: Mapping[str, Any]) -> list[int]:
    """An agent of each other owner whose calls this cap concerns, too: it is that of a connection of the server."""
    shared = Connection.objects.filter(pk=cap["subject"], owner=None).first() if cap["is_private"] else None
    if shared is None:
        return []
    owner = Agent.objects.filter(pk=cap["agent"]).values("owner")
    others = agents_using(shared).filter(owner__is_active=True).exclude(owner__in=owner)
    return list(others.order_by("owner", "pk").distinct("owner").values_list("pk", flat=True)[:MOST_TOLD])


def _tell_owner(agent: int, state: CapState) -> None:
    """Tell the owner of an agent by its mailbox and by a system event. A second time it does nothing."""
    cap, event = state.cap, _EVENTS[state.percent == REACHED]
    said = "is reached" if state.percent == REACHED else f"is nearly reached ({state.percent} %)"
    said = said if state.needs is None else "allows no further call"
    summary = f"The cap of {subject_of(cap)} {said}."
    near = f"{summary}{_spent_text(state)} {anew(cap)}"
    # of these amounts: after a change of the cap it is told anew
    of = f"{cap['key']}:{cap['tokens']}:{cap['micro_usd']}:{state.percent}:{agent}"
    update = NewUpdate(
        event_id=uuid.uuid5(NAMESPACE, of),
        event_type=str(event).replace(".", "_"),
        summary=summary,
        detail=cap_text(cap, state.needs, _spent(state)) if state.percent == REACHED else near,
        priority=Priority.HIGH,
        dedupe_key=f"budget:{cap['key']}",
    )
    deposit(None, update, or_primary_of=agent)
    session = Session.objects.filter(agent=agent, key=PRIMARY_KEY).values_list("pk", flat=True).first()
    if session is None:
        return
    usd = None if cap["micro_usd"] is None else usd_text(cap["micro_usd"])
    amounts = {
        "cap": {"tokens": cap["tokens"], "usd": usd},
        "spent": {"tokens": state.tokens, "usd": usd_text(state.micro_usd)},
    }
    report_limit(
        session,
        event,
        of=of,
        scope=cap["scope"],
        name=cap["name"],
        limit=cap["period"],
        turn=cap["turn"],
        run=cap["run"],
        resets_at=cap["ends_at"],
        **({} if cap["is_private"] else amounts),
    )
