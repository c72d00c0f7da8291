"""Buttons below a question that takes yes or no. Each names its question, so it counts for no other (rule 3.5)."""

from __future__ import annotations

import re

from agent_core.execution import Status
from sessions_app.exceptions import NotWaiting, QuestionTaken, SessionsError
from sessions_app.models import ConsentQuestion, ExecutionState, Turn
from sessions_app.questions.question_reads import question_after
from sessions_app.questions.questions import answer_consent, answer_question

ANSWERED = "This question was answered already."
LONGEST_LABEL = 40  # characters
_DATA = re.compile(r"(yes|no):([0-9a-z]{1,16})")


def buttons_of(turn_id: int) -> list[tuple[str, str]]:
    """Return label and data of each button below the question that this turn asked.

    Empty if it asked nothing, or a question that is not answered by yes or no.
    """
    turn = Turn.objects.filter(pk=turn_id).first()
    asked = question_after(turn) if turn is not None else None
    if asked is None or not asked.id:
        return []
    if asked.calls:
        more = f" and {len(asked.calls) - 1} more" if len(asked.calls) > 1 else ""
        labels = (f"Allow {asked.calls[0]['name']}"[:LONGEST_LABEL] + more, "Refuse")
    elif _takes_yes_or_no(asked.execution):
        labels = ("Yes", "No")
    else:
        return []
    return [(label, f"{word}:{asked.id}") for label, word in zip(labels, ("yes", "no"), strict=True)]


def press(agent_id: int, data: str, key: str) -> str:
    """Answer the question that a button names, as the page's buttons do. Returns what to show to who pressed it.

    `key` is the press's own: a repeated one changes nothing.
    """
    pressed = _DATA.fullmatch(data)
    if pressed is None:
        return ANSWERED
    word, question_id = pressed.groups()
    try:
        _answer(agent_id, word, question_id, key)
    except (NotWaiting, QuestionTaken):
        return ANSWERED
    except SessionsError as refusal:
        return str(refusal)[:200]
    return "You answered: yes." if word == "yes" else "You answered: no."


def _answer(agent_id: int, word: str, question_id: str, key: str) -> None:
    asked = ConsentQuestion.objects.filter(pk=question_id, session__agent_id=agent_id).first()
    if asked is not None:
        answer_consent(asked, word, key)
        return
    waiting = ExecutionState.objects.filter(question_id=question_id, session__agent_id=agent_id)
    execution = waiting.order_by("-created_at").first()
    if execution is None:
        raise NotWaiting
    answer_question(execution, word, key, question_id)


def _takes_yes_or_no(execution_id: str) -> bool:
    rows = ExecutionState.objects.filter(pk=execution_id, status=Status.WAITING_CONFIRMATION)
    return rows.exists()
