"""Asks the model whether a person should be told of a reply that nobody waited for (rule 4.1)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from agent_core import prompts
from agent_core.exceptions import ModelError, Stale
from agent_core.llm.protocol import ModelReply
from agent_core.text import fence
from agent_core.turn import budget, exchange
from agent_core.turn.control import TurnControl
from agent_core.turn.endings import log_failed_call
from agent_core.turn.exchange import Cancelled, Stopped, Watch
from agent_core.types import Ending, TurnRequest, TurnResult
from agent_core.verdict import Verdict, read_verdict

PROMPT: Final = "evaluate.response"
LONGEST_SECONDS = 60.0  # for the call with its retries
_LONGEST_SHOWN = 20_000  # characters of the task, and of the reply

log = logging.getLogger(__name__)


def evaluate_response(
    result: TurnResult, *, task: str, request: TurnRequest, control: TurnControl
) -> TurnResult:
    """Return the result with a verdict on its reply and the tokens used for it.

    An error, a timeout or an unreadable answer means: notify. A signal counts as during the turn: the result is
    cancelled or handed back, or Stale is raised.
    """
    watch = Watch(control, min(LONGEST_SECONDS, request.policy.timeout_seconds))
    try:
        answer = _ask(task, result.reply, request, watch)
    except Stopped:
        return TurnResult(ending=Ending.HANDED_BACK)
    except Cancelled:
        return replace(result, ending=Ending.CANCELLED)
    except Stale:
        raise
    except Exception as error:  # noqa: BLE001 - no error may keep the reply from the person
        why = error.reason if isinstance(error, ModelError) else ""
        return replace(result, verdict=_unjudged(why or type(error).__name__, error, error))
    verdict = read_verdict(answer.text) or _unjudged("its answer cannot be read", answer.text)
    return replace(result, verdict=verdict, usage=result.usage + answer.usage)


def _ask(task: str, reply: str, request: TurnRequest, watch: Watch) -> ModelReply:
    most = budget.limit() // 3 or _LONGEST_SHOWN  # tokens of each
    shown = [budget.clipped(text[:_LONGEST_SHOWN], most) for text in (task, reply)]
    blocks = [fence.fenced(name, text) for name, text in zip(("task", "answer"), shown, strict=True)]
    message = f"## Task\n\n{blocks[0]}\n\n## Answer\n\n{blocks[1]}"
    system_prompt = prompts.render_prompt(PROMPT, {"data_rule": prompts.data_rule()}).text
    return exchange.ask_once(request, watch, system_prompt=system_prompt, message=message)


def _unjudged(why: str, detail: object, error: Exception | None = None) -> Verdict:
    more = {"why": why, "detail": " ".join(str(detail).split())[:300]}
    log_failed_call(log, "not_judged", error, more)
    return Verdict(notify=True, reason=f"Not judged: {why}."[:300])
