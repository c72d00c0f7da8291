"""The base of all acts of the tour: send messages, wait, and compare responses of the API."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from config.tour.client import ApiAnswer, Server, TourError
from config.tour.report import TourReport

POLL_SECONDS = 0.3
ENDED = {"succeeded", "failed", "cancelled", "merged"}


@dataclass(kw_only=True)
class Act:
    """One act. The session's key is chosen before the session exists, so that it can always be found and removed."""

    title: ClassVar[str]
    needs_own_agent: ClassVar[bool] = False  # an agent that nobody else uses

    server: Server
    report: TourReport
    agent: str
    key: str
    patience: float  # seconds that one turn or run may take
    session: dict[str, Any] = field(default_factory=dict)

    def take(self) -> None:
        """Take all steps in order. Raises TourError if one is impossible."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """The path of the session in the API."""
        return f"/api/sessions/{self.session['id']}/"

    def open_session(self) -> None:
        """Create the session of this act."""
        given = {"agent": self.agent, "key": self.key, "title": "Tour"}
        self.session = self.server.create("/api/sessions/", given)
        self.report.saw("session", f"{self.session['id']} ({self.session['key']})")

    def compare(self, what: str, wanted: dict[str, Any], found: Any) -> None:
        """Check that each wanted key has its value; other keys are ignored."""
        known = found if isinstance(found, dict) else {}
        wrong = {name: known.get(name) for name, value in wanted.items() if known.get(name) != value}
        self.report.check(what, not wrong, f"found {wrong}")

    def say(self, text: str) -> dict[str, Any]:
        """Send a message and wait until its turn ends."""
        self.report.saw("you", text)
        answer = self.server.ask("POST", f"{self.address}messages/", {"content": text}, Prefer="wait=60")
        if answer.status not in {200, 202}:
            raise TourError(f"the message was refused: {answer}")
        turn_id = answer.body["id"]
        turn = self.until("the turn ended", lambda: self.ended_turn(turn_id))
        self.report.saw("agent", turn["reply"] or f"({turn['state']})")
        self.succeeded("the turn", turn)
        return turn

    def succeeded(self, what: str, found: dict[str, Any]) -> bool:
        """Check that a turn or run has succeeded."""
        good = found["state"] == "succeeded"
        return self.report.check(f"{what} succeeded", good, f"{found['state']}: {found['error']}")

    def ended_turn(self, turn_id: int) -> dict[str, Any] | None:
        """The turn, once it has ended."""
        turn: dict[str, Any] = self.server.get(f"/api/turns/{turn_id}/")
        return turn if turn["state"] in ENDED else None

    def ended_run(self, job: str) -> dict[str, Any] | None:
        """The oldest run of this job that has ended."""
        runs = [run for run in self.server.every(f"{job}runs/") if run["state"] in ENDED]
        return runs[-1] if runs else None

    def until(self, what: str, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """Call `look` until it returns something. Raises TourError if that takes too long."""
        give_up = time.monotonic() + self.patience
        while (found := look()) is None:
            if time.monotonic() > give_up:
                self.report.check(what, holds=False, why=f"not within {self.patience:.0f} s")
                raise TourError("waited too long")
            time.sleep(POLL_SECONDS)
        return found

    def messages(self) -> list[dict[str, Any]]:
        """The history of this act's session."""
        return self.history(self.session["id"])

    def history(self, session_id: str) -> list[dict[str, Any]]:
        """The history of any session."""
        return list(self.server.every(f"/api/sessions/{session_id}/messages/"))

    def delete(self, path: str) -> ApiAnswer:
        """A confirmed DELETE, repeated while the session is busy: a run may just have begun."""
        give_up = time.monotonic() + self.patience
        while True:
            answer = self.server.ask("DELETE", f"{path}?delete_automations=true")
            busy = answer.status == 409 and answer.body.get("code") == "session_busy"
            if not busy or time.monotonic() > give_up:
                return answer
            time.sleep(POLL_SECONDS)


def source(message: dict[str, Any]) -> dict[str, Any]:
    """The source in a message's metadata."""
    return message["metadata"].get("source") or {}
