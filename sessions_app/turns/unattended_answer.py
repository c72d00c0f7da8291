"""The turn that answers a question of a scheduled turn: the server itself makes the call of a yes (rule 11.4)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

from django.db import transaction

from agent_core import tools
from agent_core.exceptions import UnknownTool
from agent_core.execution import WAITING, ConsentRequest, new_id
from agent_core.planner.decide import plain_answer
from agent_core.tool_spec import ToolSpec
from agent_core.turn.consent import NEEDED, version_of_call
from agent_core.turn.control import TurnControl
from agent_core.turn.run import run_turn
from agent_core.types import (
    Ending,
    Entry,
    Role,
    Step,
    StepKind,
    ToolCall,
    ToolOutcome,
    TurnEvent,
    TurnResult,
    Usage,
)
from sessions_app.models import BACKGROUND, ConsentQuestion, Turn
from sessions_app.questions import consent, unattended
from sessions_app.queue.kinds import is_persons, kind_of
from sessions_app.turns.context import Prepared
from sessions_app.turns.tool_calls import JournalPorts

MADE = (
    "## Consent\n\nA scheduled turn was refused a call, and the person allows it now. The server has made it once: its"
    " result follows. Say what came of it."
)
ONLY_THIS = (
    "This needs the person's consent, and this turn makes only the call that they have allowed. Say in your answer what"
    " else you want to do; the person can ask for it in a message of their own."
)
NOT_MADE = "The call is not made: {why}."
REFUSED = "The call is not made."
_OVER = "the question is closed, because it was answered, replaced by a newer one or its time was over"
_CHANGED = "the tool, or what the call is about, has changed since it was asked for"
_TAKEN_BACK = "you wrote something else after the yes; say yes to the question again to have it made"
_GONE = "the agent does not have this tool any more"

Events = Generator[TurnEvent, None, TurnResult]


def answer_of(prepared: Prepared) -> tuple[ConsentQuestion, str] | None:
    """Return the scheduled turn's question that a person's message names, and the answer: yes or no. None: it does not.

    A stranger answers none. It runs no query unless the message is a plain yes or no that names a question.
    """
    turn, (answer, name) = prepared.turn, plain_answer(prepared.trigger.model_content)
    to = turn.input.question or name
    if prepared.permit.stranger is not None or not is_persons(turn):
        return None
    if not answer or not to or name not in {"", to}:
        return None
    asked = ConsentQuestion.objects.filter(pk=to, session=prepared.session, expires_at__isnull=False).first()
    return None if asked is None else (asked, answer)


def run_answer(
    prepared: Prepared, question: ConsentQuestion, answer: str, given: dict[str, Any], control: TurnControl
) -> Events:
    """Make the call of a yes, and have the model tell its result. If the call may not be made, answer why, in the
    server's words.
    """
    if not consent.may_say(answer, prepared.turn, question):
        return _said(NOT_MADE.format(why="the agent's owner must answer"))
    if answer == "no":
        return replace(_said(REFUSED), answered=(question.pk, "no"))
    if question.why_closed:
        return _said(NOT_MADE.format(why=f"the question is closed, because {question.why_closed}"))
    spec, why = _spec_now(prepared, question, given)
    made = prepared.request.steps
    if not made and not why:
        made, why = _begin(prepared, question)
    if not made:
        closes = None if why == _TAKEN_BACK else (question.pk, "")
        return replace(_said(NOT_MADE.format(why=why)), answered=closes)
    if question.calls[0].get(unattended.HAS_READ):
        given["permit"] = replace(given["permit"], has_read=True)
    given["consented"] = lambda call: (
        spec is not None and consent.grant(prepared.journal, call, spec, question_id=question.pk)
    )
    request = replace(prepared.request, steps=made, message=f"{MADE}\n\n{prepared.request.message}")
    return (yield from run_turn(request, JournalPorts(**given), control))


def _said(text: str) -> TurnResult:
    entries = (Entry(role=Role.ASSISTANT, content=text),)
    return TurnResult(ending=Ending.SUCCEEDED, entries=entries, was_shown=False)


def _spec_now(
    prepared: Prepared, question: ConsentQuestion, given: dict[str, Any]
) -> tuple[ToolSpec | None, str]:
    """Return the tool of the call as it is now, and why the call may not be made any more; empty: it may be."""
    [asked] = question.calls
    try:
        spec = (given["more"].get(asked["name"]) or tools.get(asked["name"])).spec(given["context"])
    except UnknownTool:
        return None, _GONE
    if all(each.name != spec.name for each in prepared.request.offered):
        return None, _GONE
    if asked["version"] != version_of_call(spec, asked["arguments"]):
        return None, _CHANGED
    turn = Turn.objects.filter(pk=question.turn_id).first()
    why = "its run is not stored any more" if turn is None else kind_of(turn).why_outdated(turn, spec.name)
    return spec, why


def _begin(prepared: Prepared, question: ConsentQuestion) -> tuple[tuple[Step, ...], str]:
    """Take the consent and journal the call as the turn's first response, behind the fence. Returns this step, or why
    the consent was not taken.
    """
    [asked] = question.calls
    call = ToolCall(id=new_id(), name=asked["name"], arguments=asked["arguments"])
    data = {
        "entry": Entry(role=Role.ASSISTANT, content="", calls=(call,)).to_json(),
        "usage": Usage().to_json(),
    }
    with transaction.atomic():
        prepared.journal.fence()
        if consent.may_be_taken_back(prepared.turn, question.pk):
            return (), _TAKEN_BACK
        if not ConsentQuestion.objects.grant_in_time(question.pk, prepared.turn):
            return (), _OVER
        unattended.tell_answered(question.pk, is_allowed=True)
        prepared.journal.record(StepKind.RESPONSE, data)
    return (Step(n=1, kind=StepKind.RESPONSE, data=data),), ""


def with_questions(prepared: Prepared, ports: JournalPorts, result: TurnResult) -> TurnResult:
    """Add what a scheduled turn asks its owner below its answer. It is marked as a run that needs consent, and so is
    one whose plan ends with a question.
    """
    is_asked = ports.asked_owner or any(map(_asked, prepared.request.steps)) or _ends_with_question(result)
    if prepared.kind.interactive or not is_asked:
        return result
    result = replace(result, needs_consent=True)
    turn = prepared.turn
    if prepared.session.type in BACKGROUND or result.ending is not Ending.SUCCEEDED or not result.entries:
        return result
    mine = ConsentQuestion.objects.open().filter(turn=turn, session=prepared.session)
    asked = list(mine.order_by("asked_at", "id"))
    if not asked:
        return result
    text = "\n\n".join(each.text for each in asked)
    asks = ConsentRequest(id=asked[-1].pk, text=text, calls=tuple(asked[-1].calls))
    *before, last = result.entries
    said = replace(last, content=f"{last.content.rstrip()}\n\n{text}".lstrip())
    return replace(result, entries=(*before, said), asks=asks)


def _ends_with_question(result: TurnResult) -> bool:
    plan = result.execution
    return (
        plan is not None
        and bool(plan.question)
        and (plan.status in WAITING or plan.final_answer == plan.question)
    )


def _asked(step: Step) -> bool:
    """Whether an earlier attempt of the turn was refused a call for want of consent."""
    refused = step.kind is StepKind.RESULT and step.data.get("outcome") == ToolOutcome.REFUSED
    return refused and step.data.get("error_class") == NEEDED
