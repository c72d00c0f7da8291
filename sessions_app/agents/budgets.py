"""The budgets of a turn: which ones its calls are charged to, what people read when a cap stops a call, what owners are
told.

`agent_core` calls the hook before each call that a budget applies to. Owners are told of 80 and of 100 percent once in
each period, by a mailbox update of the agent whose call it was and by a system event.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db import connection as database
from django.db.models import Model

from agent_core import connections
from agent_core.exceptions import CapReached, ModelUnavailable
from agent_core.spending import Account, Amount, Budget, Settle, usd_text
from sessions_app.deliveries.system_events import EventName, report_event
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
from sessions_app.spending import accounts
from sessions_app.spending.accounts import Crossed, Refused
from sessions_app.spending.caps import anew, budget_of, cap_rows, micro_of, words_of

LONGEST_NAME = 60
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
        run=turn.origin_run or f"turn:{turn.pk}",
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
    found = (
        budget_of("agent", agent.pk, agent.name, agent.limits, zone=zone),
        budget_of("user", agent.owner_id, "", user_limits),
        *(
            budget_of("automation", each, names.get(each, each), limits, zone=zone)
            for each, limits in caps.items()
        ),
    )
    return tuple(each for each in found if each is not None)


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
    agent, run = (account.agent, account.run) if account else (0, f"call:{uuid.uuid4()}")
    caps = [{**row, "agent": agent} for row in cap_rows(budgets, run, datetime.now(UTC))]
    try:
        made = accounts.reserve(account, amount, caps)
        if isinstance(made, Refused) and not made.is_held:
            count(Counted.CAP_REFUSAL, scope=made.cap["scope"], period=made.cap["period"])
            _note_refusal(account, made)
    except (OperationalError, InterfaceError) as error:
        away = ModelUnavailable(type(error).__name__, reason=UNREADABLE)
        away.is_free = True
        raise away from error
    finally:
        _release_database()
    if isinstance(made, Refused):
        raise CapReached(_refusal_text(made), is_held=made.is_held)
    return partial(_settle_call, made)


def _settle_call(reservation: int, used: Amount | None) -> None:
    """Settle after a call. If the database is away, the reservation stands until the sweep settles it."""
    try:
        _settle(reservation, used)
    except (OperationalError, InterfaceError):
        log.warning("not_settled", reservation=reservation)
    finally:
        _release_database()


def _settle(reservation: int, used: Amount | None) -> None:
    for crossed in accounts.settle(reservation, used):
        _tell(crossed)


def _release_database() -> None:
    if not database.in_atomic_block:
        database.close()


def _note_refusal(account: Account | None, refused: Refused) -> None:
    """A call does not fit any more in this period: tell the owner, and have firing skip the automation.

    Not if the cap was changed after the turn had read it.
    """
    if not refused.cap["ends_at"] or not _still_stands(refused.cap):
        return
    _tell(Crossed(cap=refused.cap, percent=REACHED, tokens=refused.tokens, micro_usd=refused.micro_usd))
    if account is not None and account.automations:
        accounts.mark_stopped(account.owner, account.automations, refused.cap["ends_at"])


def _still_stands(cap: Mapping[str, Any]) -> bool:
    stored = _MODELS[cap["scope"]]._default_manager.filter(pk=cap["subject"])  # noqa: SLF001 - Django's name
    limits = stored.values_list("limits", flat=True).first() or {}
    now = limits.get(cap["period"], {})
    return (now.get("tokens"), micro_of(now.get("usd"))) == (cap["tokens"], cap["micro_usd"])


def subject_of(cap: Mapping[str, Any]) -> str:
    """Say whose cap it is, such as `the agent demo`."""
    name = cap["name"][:LONGEST_NAME]
    return {"user": "your account", "automation": f'the automation "{name}"'}.get(
        cap["scope"], f"the {cap['scope']} {name}"
    )


def _refusal_text(refused: Refused) -> str:
    cap = refused.cap
    spent = "" if cap["is_private"] else f" {words_of(cap, refused.tokens, refused.micro_usd)} spent."
    if refused.is_held:
        return f"Calls that have not ended hold what is left of the cap of {subject_of(cap)}.{spent}"
    return f"The cap of {subject_of(cap)} does not allow another call.{spent} {anew(cap)}"


def _tell(crossed: Crossed) -> None:
    """Tell the owner of the agent, unless that was told already."""
    cap, is_reached = crossed.cap, crossed.percent == REACHED
    if not cap["agent"]:  # the test of a connection; the next call of an agent tells it
        return
    with transaction.atomic():
        news = Spending.objects.filter(pk=cap["key"], told__lt=crossed.percent).update(told=crossed.percent)
        if not news:
            return
        log.info("cap_told", key=cap["key"], percent=crossed.percent)
        said = "is reached" if is_reached else f"is nearly reached ({crossed.percent} %)"
        spent = "" if cap["is_private"] else f" {words_of(cap, crossed.tokens, crossed.micro_usd)} spent."
        update = NewUpdate(
            event_type=str(_EVENTS[is_reached]).replace(".", "_"),
            summary=f"The cap of {subject_of(cap)} {said}.",
            detail=f"The cap of {subject_of(cap)} {said}.{spent} {anew(cap)}",
            priority=Priority.HIGH,
            dedupe_key=f"budget:{cap['key']}",
        )
        deposit(None, update, or_primary_of=cap["agent"])
        session = (
            Session.objects.filter(agent=cap["agent"], key=PRIMARY_KEY).values_list("pk", flat=True).first()
        )
        if session is not None:
            report_event(
                session, _EVENTS[is_reached], _event_data(crossed), of=f"{cap['key']}:{crossed.percent}"
            )


def _event_data(crossed: Crossed) -> dict[str, Any]:
    cap = crossed.cap
    about = {"scope": cap["scope"], "name": cap["name"], "period": cap["period"], "resets_at": cap["ends_at"]}
    if cap["is_private"]:
        return about
    usd = None if cap["micro_usd"] is None else usd_text(cap["micro_usd"])
    return about | {
        "cap": {"tokens": cap["tokens"], "usd": usd},
        "spent": {"tokens": crossed.tokens, "usd": usd_text(crossed.micro_usd)},
    }
