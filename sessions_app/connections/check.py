"""Test a connection by one model call, and store the last error of its calls."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.db.models import QuerySet
from django.db.models.functions import Now

from agent_core import connections
from agent_core.connections import Connection as Usable
from agent_core.exceptions import CapReached, ModelError
from agent_core.policy import TurnPolicy
from agent_core.turn.control import TurnControl
from agent_core.turn.endings import ERROR_TEXTS
from agent_core.turn.exchange import TimedOut, Watch, ask_once
from agent_core.types import TurnRequest
from sessions_app.connections.edit import tell_changed
from sessions_app.connections.usable import is_model_name, usable
from sessions_app.exceptions import BadInput
from sessions_app.limits.request_rate import Rate, take_allowance
from sessions_app.models import Connection
from sessions_app.models.agent import LONGEST_ERROR
from sessions_app.postgres.rows import release_connection

LONGEST_TEST = 30.0  # seconds
TESTS = Rate(limit=6, seconds=60)  # for each person
QUESTION = "Reply with the word OK."


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The outcome of a test. `error` is for the connection's user; empty: the model replied."""

    model: str
    error: str
    milliseconds: int


def call_once(row: Connection, model: str = "") -> Tested:
    """Ask a model of the connection, by default its first allowed one, within LONGEST_TEST. BadInput."""
    model = model or next(iter(row.allowed_models), "")
    if not is_model_name(model):
        raise BadInput("name a model to test: the connection allows all", code="bad_model")
    known = usable(row)
    if refused := known.refusal(model):
        raise BadInput(refused, code="bad_model")
    release_connection()  # during the call
    began = time.monotonic()
    error, said, is_kept = _ask(known, model)
    took = round((time.monotonic() - began) * 1000)
    if is_kept and (error or connections.concerns(row.last_error, model)):
        _store(row.pk, Connection.objects.filter(revision=row.revision), error)
    error += f" It said: {said}" if said else ""
    return Tested(model=model, error=error, milliseconds=took)


def _ask(known: Usable, model: str) -> tuple[str, str, bool]:
    """Return why the model did not reply (empty: it did), the provider's words, and whether to store the reason.

    All users see the stored error of a server's connection, and any of them can test a model that nobody named. So the
    error of such a test is stored only if it concerns the whole connection.
    """
    is_named = known.reach is not None or model in known.models
    request = TurnRequest(
        system_prompt="",
        history=(),
        message="",
        model=f"{known.name}:{model}",
        connections=(known,),
        policy=TurnPolicy(max_attempts=1),
    )
    try:
        ask_once(request, Watch(TurnControl(), LONGEST_TEST), system_prompt="", message=QUESTION)
    except ModelError as error:
        text = f"{error.reason or ERROR_TEXTS[error.code].rstrip('.')}."
        return text, error.said, is_named or connections.says_of(known, error, model)
    except CapReached as reached:
        return reached.text, "", False
    except TimedOut:
        return f"The model did not answer within {LONGEST_TEST:.0f} s.", "", True
    return "", "", True


def register_connections() -> None:
    """Have model calls count against the limits of their connections, and report how they end."""
    connections.hooks.admit = _admit
    connections.hooks.report = _report


def _admit(known: Usable) -> float:
    try:
        return take_allowance(f"connection:{known.id}", Rate(limit=known.requests_per_minute, seconds=60))
    finally:
        release_connection()


def _report(known: Usable, error: str) -> None:
    try:
        _store(known.id, Connection.objects.exclude(last_error=error[:LONGEST_ERROR]), error)
    finally:
        release_connection()


def _store(known: int, rows: QuerySet[Connection], error: str) -> None:
    if rows.filter(pk=known).update(last_error=error[:LONGEST_ERROR], state_since=Now()):
        tell_changed(known)
