"""Consent: a dangerous tool call needs a person's plain yes to a question that names it (rule 3.5).

The server asks the question and stores it: the calls, the message that contains it, and who answered. A plain yes
counts only while the question is the last thing that was said to the person. A yes that names the question always
counts. What a program wrote for its user (`by_program`) is never a yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from agent_core.execution import ConsentRequest, Execution, PlanStep, Status, StepType, new_id
from agent_core.planner.decide import plain_answer
from agent_core.tool_spec import ToolSpec
from agent_core.turn.consent import call_to_json, is_the_call, question_of, without_id
from agent_core.types import ToolCall, TurnResult
from sessions_app.journal import Journal
from sessions_app.models import (
    PRIMARY_KEY,
    ChatType,
    ClosedBecause,
    ConsentQuestion,
    ConsentState,
    Delivery,
    DeliveryState,
    Lane,
    Message,
    Session,
    SessionType,
    Turn,
    TurnKind,
    TurnState,
)
from sessions_app.models.message import ASKED_FROM, BY_AUTOMATION
from sessions_app.models.questions import LONGEST_PERSON
from sessions_app.models.session import WEB
from sessions_app.questions import unattended
from sessions_app.queue.kinds import is_persons

STATES = {"yes": ConsentState.GRANTED, "no": ConsentState.REFUSED, "": ConsentState.CLOSED}


@dataclass(frozen=True, kw_only=True)
class ConsentAnswer:
    """A plain yes or no in a chat, and the question it may answer. `counts` is true if it surely answers that."""

    question: ConsentQuestion | None = None
    answer: str = ""
    counts: bool = False


def read_answer(turn: Turn, session: Session, said: str) -> ConsentAnswer:
    """Read a person's message as an answer to a question of a chat. Only for a plain yes or no it runs a query."""
    answer, name = plain_answer(said)
    if not answer or not is_persons(turn):
        return ConsentAnswer()
    mine = Q(state=ConsentState.OPEN) | Q(state=ConsentState.GRANTED, answered_by=turn)
    rows = ConsentQuestion.objects.filter(mine, session=session, execution="", expires_at=None)
    to = turn.input.question
    if to or name:
        question = rows.filter(pk=to or name).first()
        # an answer that was sent to one question and names another counts for neither
        counts = question is not None and name in {"", question.pk} and may_say(answer, turn, question)
        return ConsentAnswer(question=question, answer=answer, counts=counts)
    question = _with_passed(rows).first()
    counts = question is not None and may_say(answer, turn, question) and _is_last(turn, session, question)
    return ConsentAnswer(question=question, answer=answer, counts=counts)


def reply_to_plan(
    turn: Turn, session: Session, execution: Execution, said: str, specs: Mapping[str, ToolSpec]
) -> tuple[str, ConsentRequest | None]:
    """Read a reply to a planned step that waits for consent: `yes`, `no`, or empty for anything else.

    For a yes that may be meant for something else, the question to ask again is returned as well.
    """
    step = execution.next_step()
    answer, name = plain_answer(said)
    if not answer or step is None or not _waits_for_a_yes(execution, step):
        return "", None
    if answer == "no":
        return "no", None
    if step.tool not in specs:
        return "", None  # the tool is gone, so the plan must be revised
    rows = ConsentQuestion.objects.filter(pk=execution.question_id, execution=execution.id, session=session)
    question = _with_passed(rows.filter(state=ConsentState.OPEN)).first()
    call = ToolCall(id=f"{execution.id}.{step.id}", name=step.tool, arguments=step.arguments)
    if question is not None and _asks_for(question, call):
        is_named = bool(name) or turn.input.named
        names_it = name in {"", execution.id, question.pk} and may_say(answer, turn, question)
        if names_it and (is_named or _is_last(turn, session, question)):
            return "yes", None
        return "", _again(question.pk, tuple(question.calls), execution)
    return "", _again(new_id(), (call_to_json(call, specs[step.tool]),), execution)


def _waits_for_a_yes(execution: Execution, step: PlanStep) -> bool:
    return execution.status is Status.WAITING_CONFIRMATION and step.type is StepType.TOOL


def _asks_for(question: ConsentQuestion, call: ToolCall) -> bool:
    wanted = {"id": call.id, "name": call.name, "arguments": call.arguments}
    return any(wanted.items() <= each.items() for each in question.calls)


def _again(question_id: str, calls: tuple[dict[str, Any], ...], execution: Execution) -> ConsentRequest:
    text = question_of(calls, question_id=question_id, like=execution.request, again=True)
    return ConsentRequest(id=question_id, text=text, calls=calls, execution=execution.id)


def grant(
    journal: Journal, call: ToolCall, spec: ToolSpec, *, question_id: str = "", execution: str = ""
) -> bool:
    """Use a person's yes for exactly this call, once. It is stored, behind the fence, before the call is made.

    The yes is to the question with `question_id` in a chat, or in a plan to the one that `execution` waited with.
    """
    turn = journal.turn
    with transaction.atomic():
        journal.fence()
        if may_be_taken_back(turn, question_id):
            return False
        rows = ConsentQuestion.objects.select_for_update(no_key=True).filter(session_id=turn.session_id)
        granted = Q(state=ConsentState.GRANTED, answered_by=turn)
        rows = (
            rows.filter(granted, execution=execution)
            if execution
            else rows.filter(granted | Q(state=ConsentState.OPEN), pk=question_id)
        )
        for question in rows:
            if _use(question, call, spec, by_id=bool(execution)):
                return ConsentQuestion.objects.grant(question, turn)
    return False


def may_be_taken_back(turn: Turn, question_id: str) -> bool:
    """Whether the person stopped the turn, or has since written anything but a yes, or the answer to another question
    than this one. Injected messages count.
    """
    if turn.cancel_requested_at is not None:
        return True
    waiting = Turn.objects.filter(
        session_id=turn.session_id, state=TurnState.QUEUED, lane=Lane.PEOPLE, kind=TurnKind.MESSAGE
    )
    written = waiting.only("kind", "content", "metadata").order_by()
    return any(is_persons(each) and _may_take_back(each, question_id) for each in written)


def _may_take_back(written: Turn, question_id: str) -> bool:
    answer, name = plain_answer(written.content)
    to = written.input.question or name
    is_to_another = bool(answer and question_id and to) and to != question_id
    return answer != "yes" and not is_to_another


def _use(question: ConsentQuestion, call: ToolCall, spec: ToolSpec, *, by_id: bool) -> bool:
    """Mark the consent as used by this call. False if it was not asked for, or another call has used it."""
    for asked in question.calls:
        free = asked.get("used") in (None, call.id) and (not by_id or asked["id"] == call.id)
        if free and is_the_call(asked, call, spec):
            asked["used"] = call.id
            return True
    return False


def settle_question(question_id: str, answer: str, turn: Turn) -> None:
    """Store this turn's answer to a question: yes, no, or empty for anything else. Only an open question changes."""
    if ConsentQuestion.objects.settle(question_id, STATES[answer], turn) and answer:
        unattended.tell_answered(question_id, is_allowed=answer == "yes")


def mark_question(last: Iterable[Message], result: TurnResult) -> None:
    """Mark the message that asks for consent, and where in it the question begins, which is shown to the letter.

    The model does not see the id, so it cannot make people repeat it.
    """
    execution = result.execution
    question_id, text = (result.asks.id, result.asks.text) if result.asks is not None else ("", "")
    if execution is not None and execution.asks:
        question_id, text = execution.question_id, execution.question
    for message in last if question_id else ():
        before = message.content.removesuffix(text)
        message.metadata["consent_question"] = question_id
        message.metadata[ASKED_FROM] = len(before) if before != message.content else 0
        message.model_content = without_id(message.content)


def store_question(turn: Turn, asked: ConsentRequest, seq: int) -> None:
    """Store the question of the message with this seq. A question that is asked again is moved to it."""
    questions = ConsentQuestion.objects.filter(session_id=turn.session_id)
    person = _person_of(turn)
    if asked.execution:
        of_plan = questions.filter(execution=asked.execution)
        # whoever replies meanwhile, a plan asks the person whom it asked first
        person = next(iter(of_plan.values_list("asked_of", flat=True)[:1]), person)
        of_plan.exclude(pk=asked.id).close(ClosedBecause.NEWER)
    if questions.ask_again(asked, turn, seq):
        return
    row = ConsentQuestion(
        id=asked.id,
        session_id=turn.session_id,
        execution=asked.execution,
        asked_of=person,
        turn=turn,
        text=asked.text,
        calls=list(asked.calls),
        asked_seq=seq,
    )
    # a question that was closed just now stays closed; a yes to it makes the server ask again
    ConsentQuestion.objects.bulk_create([row], ignore_conflicts=True)


# Whether a message may answer a question: who wrote it, when, and what was said since.


def may_say(answer: str, turn: Turn, question: ConsentQuestion) -> bool:
    """Whether the message may be this answer: the owner and the person who was asked may consent, all may refuse.

    A program may refuse for its user, and not consent.
    """
    if answer != "yes":
        return True
    if turn.input.by_program:
        return False
    person = _person_of(turn)
    is_known = not person.endswith(":")
    return turn.input.posted_by is None or (is_known and person == question.asked_of)


def _person_of(turn: Turn) -> str:
    """Return who wrote the message: empty for the owner, else the hook and its sender, `<hook>:` if that is unknown.

    A hook without senders speaks for the owner, except in a group.
    """
    posted_by = turn.input.posted_by
    in_group = turn.input.in_group or turn.session.chat_type == ChatType.GROUP
    if posted_by is None or (not posted_by.sender and not in_group):
        return ""
    return f"{posted_by.hook}:{posted_by.sender}"[:LONGEST_PERSON]


def _with_passed(rows: QuerySet[ConsentQuestion]) -> QuerySet[Any]:
    """Annotate the questions with `passed`: after it, somebody other than the person said something.

    The closure of a failed turn does not count. The input of another system or an automation does.
    """
    answered = Q(role="assistant") & ~(Q(content="") | Q(metadata__has_key="closure"))
    by_others = Q(metadata__via__as_person=False) | Q(metadata__has_key=BY_AUTOMATION)
    later = Message.objects.filter(session=OuterRef("session"), seq__gt=OuterRef("asked_seq"))
    return rows.annotate(passed=Exists(later.filter(answered | Q(role="user") & by_others)))


def _is_last(turn: Turn, session: Session, question: Any) -> bool:
    """Whether the question was asked before the message was written, and nothing else was said since."""
    if question.passed or question.asked_seq > turn.input.seen:
        return False
    if _written_at(turn) <= question.asked_at:
        return False
    if not _has_arrived(turn, session, question):
        return False
    beside = _shown_beside(session, question)
    elsewhere = Message.objects.filter(role="assistant", created_at__gte=question.asked_at).exclude(
        content=""
    )
    return beside is None or not elsewhere.filter(beside, session__agent=session.agent_id).exists()


def _shown_beside(session: Session, question: ConsentQuestion) -> Q | None:
    """Condition: other sessions that windows may have shown together with the question since it was asked."""
    agent = session.agent
    if session.key == PRIMARY_KEY and agent.unified_session:
        # threads also show the messages of their own older automations
        return Q(session__type=SessionType.SUB, session__channel=WEB)
    if session.is_thread and agent.updated_at >= question.asked_at:
        # the agent was changed since, and may have been unified for a while
        return Q(session__key=PRIMARY_KEY)
    return None


def _has_arrived(turn: Turn, session: Session, question: ConsentQuestion) -> bool:
    """Whether the question had reached the channel that the message comes from. Windows always show it.

    A message that is a reply to another message of the channel does not answer the question.
    """
    given = turn.input
    route = given.route or {}
    if route.get("channel", WEB) == WEB:
        return True
    there = Delivery.objects.filter(
        message__session=session,
        message__seq=question.asked_seq,
        channel=route["channel"],
        address=route["chat_id"],
        state=DeliveryState.SENT,
        ended_at__lte=_written_at(turn),
    )
    if given.number_at_channel is not None:
        there = there.filter(number_at_channel__lt=given.number_at_channel)
    if given.replies_to is not None:
        there = there.filter(number_at_channel=given.replies_to)
    return there.exists()


def _written_at(turn: Turn) -> datetime:
    """Return when the message was written, at the latest: by its sender's clock, if there is one, else when it came.

    A sender's clock tells seconds, so a message may be as old as the beginning of its second.
    """
    seconds = turn.input.written_at
    if seconds is None:
        return turn.queued_at
    return min(turn.queued_at, datetime.fromtimestamp(seconds, UTC))
