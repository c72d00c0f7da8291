"""The kinds of turns and their differences. Apps above register theirs when they start.

The flow of a turn is the same for all kinds. It calls `started` in the claim, `before`, `trigger` and
`answer_without_model` to prepare it, `refused` while tools are called, `to_judge` after the answer, and `prompted` and
`closed` in the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_core.exceptions import CapReached
from agent_core.tool_spec import ToolSpec
from agent_core.turn.control import TurnControl
from agent_core.turn.endings import ERROR_TEXTS
from agent_core.types import EMPTY, Ending, ToolCall, TurnResult
from sessions_app.exceptions import OwnerInactive
from sessions_app.memory import files, task_state
from sessions_app.models import Session, Turn, TurnKind
from sessions_app.permits import shown_post, stranger_of

NO_LIMITS: Mapping[str, Any] = MappingProxyType({})  # of its own


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A turn's input: `content` is what people read in the history, `model_content` what the model is shown.

    `metadata` goes to the stored message, `source` and `route` to the answer's metadata. With an empty `content` no
    input is stored, and `metadata` goes to the answer.
    """

    content: str
    model_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] | None = None
    route: dict[str, Any] | None = None
    template: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form that the journal stores."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trigger:
        """Read what `to_json` wrote."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


class Kind:
    """The base class of kinds. A subclass has a name and a trigger, and overrides what differs."""

    name: TurnKind
    is_message = False  # its input is what somebody wrote, not a task with a prompt; it is shown the mailbox
    asks_model = True  # else it ends at once, and is not cancelled when its owner becomes inactive
    interactive = False  # a person waits for the answer: messages may be injected, automations may be created
    policy: Mapping[str, Any] = NO_LIMITS  # limits of this kind; those of the agent override them
    trigger_only = False  # the model is shown the trigger without history and tools
    strategy = ""  # the name of the context strategy; empty: that of the session's type
    may_plan = True  # an agent with the planner engine makes a plan for it
    delivers_answer = True  # the commit enqueues its answer for delivery; else the kind does that itself
    keeps: int | None = None  # how many of the newest messages stay in the window after the turn; None: all
    runs_shown: int | None = None  # how many earlier turns of automations its model is shown; None: all
    uses_standing_route = False  # without a route of its own its answer goes to the session's standing route

    def started(self, turn: Turn) -> None:
        """A worker has claimed the turn; called in the transaction of its claim."""

    def before(self, turn: Turn, journal: Any, control: TurnControl) -> None:
        """Do work before the turn is prepared. No transaction is open. NothingToDo, Stale."""

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """Return the turn's input. It only reads. `session`: as the turn was prepared, with its agent."""
        raise NotImplementedError

    def prompted(self, turn: Turn, trigger: Trigger) -> None:
        """The model was shown the trigger; called in the transaction of the commit, before `closed`."""

    def refused(self, turn: Turn, call: ToolCall, spec: ToolSpec, *, has_read: bool) -> None:
        """A call was refused because consent is missing; called in the transaction that journals the result.

        `has_read`: the turn has read text from outside.
        """

    def why_outdated(self, turn: Turn, tool: str) -> str:  # noqa: ARG002 - every kind is asked alike
        """Why a call of this tool that the turn has asked for must not be made any more; empty: it may be made."""
        return ""

    def answer_without_model(self, turn: Turn) -> str | None:
        """Return the answer if the turn needs no model. Called once, when the turn is prepared."""

    def to_judge(self, turn: Turn, result: TurnResult) -> str | None:
        """Return the task against which the reply is judged before the commit; None: it is not judged."""

    def repeats(self, turn: Turn, result: TurnResult) -> bool:  # noqa: ARG002 - every kind is asked alike
        """Whether a failure is that of the turn before, of which the conversation has the messages already."""
        return False

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> bool | None:
        """The turn ended; called in the transaction of its commit. `closure` is the last text people see.

        True: the text is no news, and is not delivered. Raises CommitRefused if a successful result cannot be stored.
        """


class CommitRefused(Exception):
    """The result of a turn cannot be stored. The turn fails with this code and text, and the result is discarded."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class NothingToDo(Exception):
    """The turn is skipped with this code and reason: no model is asked, and nothing is added to the history.

    `cap`: which cap does not allow it, if one does not.
    """

    def __init__(self, code: str, text: str, cap: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.cap = code, text, cap


CLOSURES = {
    Ending.SUCCEEDED: "Finished with no output.",
    Ending.FAILED: "The turn failed: {error}",
    Ending.CANCELLED: "Stopped.",
}
STOPPED_FOR = "Stopped: {error}"  # with a reason, if the server or a cap stopped it
_CANCELLED = ("cancelled", OwnerInactive.code, "session_archived", "paused", "deleted", "not_reached", "gate")
_FAILED = ("question_closed", "max_rescues", "tool_hung", "commit_failed")
# the codes with which turns end, for those who filter by them; plugins add codes of their own
ERROR_CODES = frozenset({*ERROR_TEXTS, *_CANCELLED, *_FAILED})
CLEARED = "Conversation cleared. Preferences, documents and automations are kept."


def closure_text(result: TurnResult) -> str:
    """Return the line that ends a turn without an answer; empty if it has an answer."""
    if result.skipped or (result.ending is Ending.SUCCEEDED and result.reply.strip()):
        return ""
    is_stopped = result.ending is Ending.CANCELLED or result.error_code == CapReached.code
    if is_stopped and result.error_text:
        return STOPPED_FOR.format(error=result.error_text)
    if empty := EMPTY.get(result.ended_by or ""):
        return empty
    return CLOSURES[result.ending].format(error=result.error_text or "an internal error.")


def is_persons(turn: Turn) -> bool:
    """Whether the message is a person's. Only such a message can be a reply, a retry, a command or consent (rule 7.3).

    A hook's post is a person's if the hook had `as_person` when it came in.
    """
    posted_by = turn.input.posted_by
    return turn.kind == TurnKind.MESSAGE and (posted_by is None or posted_by.as_person)


class MessageKind(Kind):
    """A message of a person, or of another system by a hook."""

    name = TurnKind.MESSAGE
    is_message = True
    interactive = True

    def trigger(self, turn: Turn, session: Session) -> Trigger:
        """Return the message; another system's post and the text of files become data blocks for the model."""
        return Trigger(
            content=turn.content,
            model_content=files.with_texts(
                turn.content if stranger_of(turn) is None else shown_post(turn.content),
                turn,
                session.agent_id,
            ),
            metadata=turn.input.message,
            route=turn.input.route,
        )

    def answer_without_model(self, turn: Turn) -> str | None:
        """Answer the command `/clear`, which needs no model."""
        return CLEARED if _clears(turn) else None

    def closed(self, turn: Turn, result: TurnResult, closure: str) -> None:
        """After `/clear`, clear the conversation. A message that was withdrawn is in no history, nor are its files."""
        if result.ending is Ending.CANCELLED and not closure:
            files.delete_files(turn)
        if _clears(turn) and result.ending is Ending.SUCCEEDED:
            task_state.clear_conversation(turn.session_id)


def _clears(turn: Turn) -> bool:
    """Whether the message is the command `/clear`, as was decided when it came in."""
    return is_persons(turn) and turn.input.command == "clear"


_KINDS: dict[str, Kind] = {}


def register_kind(kind: Kind) -> None:
    """Register a kind of turn."""
    _KINDS[kind.name] = kind


def kinds_without_model() -> list[str]:
    """Return the names of the registered kinds whose turns ask no model."""
    return [str(kind.name) for kind in _KINDS.values() if not kind.asks_model]


def kind_of(turn: Turn) -> Kind:
    """Return the kind of a turn."""
    return _KINDS[turn.kind]


register_kind(MessageKind())
