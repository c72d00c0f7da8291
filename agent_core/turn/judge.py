"""Decides whether a reply that nobody waited for is delivered: a heartbeat (rule 5.4), or an answer that a model judges
(rule 4.1).
"""

from __future__ import annotations

import logging
import re
import unicodedata
from dataclasses import dataclass, replace
from typing import Final

from agent_core import prompts
from agent_core.exceptions import ModelError, Stale
from agent_core.llm.protocol import ModelReply
from agent_core.text import fence
from agent_core.text.json_values import json_objects
from agent_core.turn import exchange, request_size
from agent_core.turn.control import TurnControl
from agent_core.turn.endings import log_failed_call
from agent_core.turn.exchange import Cancelled, Stopped, Watch
from agent_core.types import Ending, TurnRequest, TurnResult, Verdict

TOKEN: Final = "HEARTBEAT_OK"  # noqa: S105 - a word of the protocol, no secret
_AROUND: Final = "*_~`'\"“”‘’«» \t\r\n"  # emphasis, quotes, backticks  # noqa: RUF001
_FINAL: Final = _AROUND + ".,;:!?…。，！？；："  # noqa: RUF001
_JOINING: Final = frozenset("=$/\\@#%&+")


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatReply:
    """A heartbeat's reply without the word HEARTBEAT_OK (`text`), and whether it goes to a mailbox (`deliver`)."""

    deliver: bool
    text: str


def read_heartbeat_reply(reply: str, ack_max_chars: int) -> HeartbeatReply:
    """Suppress a reply that starts or ends with the token and has at most `ack_max_chars` beside it."""
    text = reply.strip()
    rest = _without_token(text)
    if rest is None:
        return HeartbeatReply(deliver=bool(text), text=text)
    return HeartbeatReply(deliver=len(rest) > ack_max_chars, text=rest)


def _without_token(text: str) -> str | None:
    """The text without the token at its start and end; None if it is at neither."""
    after = _after_token(text)
    before = _before_token(text if after is None else after)
    return after if before is None else before


def _after_token(text: str) -> str | None:
    stripped = text.lstrip(_AROUND)
    rest = stripped.removeprefix(TOKEN)
    if rest == stripped or _continues_word(rest):
        return None
    return rest.lstrip(_FINAL).rstrip()


def _before_token(text: str) -> str | None:
    stripped = text.rstrip(_FINAL)
    rest = stripped.removesuffix(TOKEN)
    if rest == stripped or _continues_word(rest[::-1]):
        return None
    return rest.rstrip(_AROUND).lstrip()


def _continues_word(beside: str) -> bool:
    """Whether the characters beside the token, the nearest first, make it part of a word, name, path or value."""
    nearest = beside[:1]
    if nearest in _JOINING or unicodedata.category(nearest or " ")[0] in "LNM":
        return True
    return nearest in ("_", "-") and beside.lstrip("_-")[:1].isalnum()


NO_REASON: Final = "No reason was given."
_LONGEST_VERDICT = 300
_LONGEST_READ = 20_000
_WORDS: Final[dict[object, bool]] = {"yes": True, "true": True, "no": False, "false": False}
_PLAIN = re.compile(r"\W*(yes|no)\b", re.IGNORECASE)


def read_verdict(text: str) -> Verdict | None:
    """Read a judge's answer: a JSON object with `notify`, or plain yes or no. None if it is neither."""
    for found in json_objects(text[:_LONGEST_READ]):
        notify = _as_bool(found.get("notify"))
        if notify is not None:
            return Verdict(notify=notify, reason=_one_line(found.get("reason")))
    plain = _PLAIN.match(text)
    if plain:
        rest = text[plain.end() :].strip(" .,:;-\u2013\u2014*`\n")
        return Verdict(notify=plain[1].lower() == "yes", reason=_one_line(rest))
    return None


def _as_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _one_line(reason: object) -> str:
    line = " ".join(reason.split())[:_LONGEST_VERDICT] if isinstance(reason, str) else ""
    return line or NO_REASON


PROMPT: Final = "evaluate.response"
LONGEST_SECONDS = 60.0  # for the call with its retries
_LONGEST_SHOWN = 20_000  # characters of the task, and of the reply

log = logging.getLogger(__name__)


def evaluate_response(
    result: TurnResult, *, task: str, request: TurnRequest, control: TurnControl
) -> TurnResult:
    """Return the result with a verdict on its reply. The tokens used for it are in ``control.used``.

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
    return replace(result, verdict=verdict)


def _ask(task: str, reply: str, request: TurnRequest, watch: Watch) -> ModelReply:
    most = request_size.limit() // 3 or _LONGEST_SHOWN  # tokens of each
    shown = [request_size.clipped(text[:_LONGEST_SHOWN], most) for text in (task, reply)]
    blocks = [fence.fenced(name, text) for name, text in zip(("task", "answer"), shown, strict=True)]
    message = f"## Task\n\n{blocks[0]}\n\n## Answer\n\n{blocks[1]}"
    system_prompt = prompts.render_prompt(PROMPT, {"data_rule": prompts.data_rule()}).text
    return exchange.ask_once(request, watch, system_prompt=system_prompt, message=message)


def _unjudged(why: str, detail: object, error: Exception | None = None) -> Verdict:
    more = {"why": why, "detail": " ".join(str(detail).split())[:300]}
    log_failed_call(log, "not_judged", error, more)
    return Verdict(notify=True, reason=f"Not judged: {why}."[:300])
