"""Is a reply that nobody waited for worth telling? One more model call, asked after the talk (rule 4.1)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from agent_core import aside, prompts
from agent_core.control import TurnControl
from agent_core.exceptions import Stale
from agent_core.exchange import Cancelled, Stopped, Watch
from agent_core.models import ModelReply
from agent_core.types import Ending, TurnRequest, TurnResult
from agent_core.verdict import Verdict, read_verdict

PROMPT: Final = "evaluate.response"
LONGEST_SECONDS = 60.0  # for the judge with all its tries
_LONGEST_SHOWN = 20_000  # characters of the task, and of the reply

log = logging.getLogger(__name__)


def evaluate_response(
    result: TurnResult, *, task: str, request: TurnRequest, control: TurnControl
) -> TurnResult:
    """Return the result with a verdict on its reply, and with the tokens that the judge used.

    An error, a time-out or an answer that cannot be read means: notify. What was asked of the turn meanwhile
    counts as during the talk: it ends as cancelled or handed back, or raises Stale.
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
    except Exception as error:  # noqa: BLE001 - whatever keeps the judge from judging keeps no news from the person
        return replace(result, verdict=_unjudged(type(error).__name__, error))
    verdict = read_verdict(answer.text) or _unjudged("its answer cannot be read", answer.text)
    return replace(result, verdict=verdict, usage=result.usage + answer.usage)


def _ask(task: str, reply: str, request: TurnRequest, watch: Watch) -> ModelReply:
    message = f"## Task\n\n{task[:_LONGEST_SHOWN]}\n\n## Answer\n\n{reply[:_LONGEST_SHOWN]}"
    return aside.ask(request, watch, system_prompt=prompts.render(PROMPT, {}).text, message=message)


def _unjudged(why: str, detail: object) -> Verdict:
    log.warning("not_judged", extra={"why": why, "detail": " ".join(str(detail).split())[:300]})
    return Verdict(notify=True, reason=f"Not judged: {why}."[:300])
