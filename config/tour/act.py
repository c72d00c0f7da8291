"""What every act of the tour does: speak in a session, wait, and compare answers of the API."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from config.tour.client import Answer, Server, TourError
from config.tour.report import Report

LOOK_SECONDS = 0.3
ENDED = {"succeeded", "failed", "cancelled", "merged"}


@dataclass(kw_only=True)
class Act:
    """One act; the session's key is chosen before it exists, so that it can be found and removed."""

    title: ClassVar[str]
    alone: ClassVar[bool] = False  # it needs an agent that nobody else uses

    server: Server
    report: Report
    agent: str
    key: str
    patience: float  # seconds that one turn or run may take
    session: dict[str, Any] = field(default_factory=dict)

    def take(self) -> None:
        """All steps in order. TourError when one cannot be taken."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """The session's path."""
        return f"/api/sessions/{self.session['id']}/"

    def open_session(self) -> None:
        """The session in which a person speaks."""
        given = {"agent": self.agent, "key": self.key, "title": "Tour"}
        self.session = self.server.make("/api/sessions/", given)
        self.report.saw("session", f"{self.session['id']} ({self.session['key']})")

    def compare(self, what: str, wanted: dict[str, Any], found: Any) -> None:
        """Each wanted key has its value; more keys may be there."""
        known = found if isinstance(found, dict) else {}
        wrong = {name: known.get(name) for name, value in wanted.items() if known.get(name) != value}
        self.report.check(what, not wrong, f"found {wrong}")

    def say(self, text: str) -> dict[str, Any]:
        """Send a message and wait for the end of its turn."""
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
        """Whether a turn or a run did."""
        good = found["state"] == "succeeded"
        return self.report.check(f"{what} succeeded", good, f"{found['state']}: {found['error']}")

    def ended_turn(self, turn_id: int) -> dict[str, Any] | None:
        """The turn, once it has ended."""
        turn: dict[str, Any] = self.server.get(f"/api/turns/{turn_id}/")
        return turn if turn["state"] in ENDED else None

    def ended_run(self, job: str) -> dict[str, Any] | None:
        """The oldest run of this address that was run to an end."""
        runs = [run for run in self.server.every(f"{job}runs/") if run["state"] in ENDED]
        return runs[-1] if runs else None

    def until(self, what: str, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        """What the look finds, as soon as it does. TourError when that takes too long."""
        give_up = time.monotonic() + self.patience
        while (found := look()) is None:
            if time.monotonic() > give_up:
                self.report.check(what, holds=False, why=f"not within {self.patience:.0f} s")
                raise TourError("waited too long")
            time.sleep(LOOK_SECONDS)
        return found

    def messages(self) -> list[dict[str, Any]]:
        """The session's history."""
        return self.history(self.session["id"])

    def history(self, session_id: str) -> list[dict[str, Any]]:
        """Any session's history."""
        return list(self.server.every(f"/api/sessions/{session_id}/messages/"))

    def delete(self, path: str) -> Answer:
        """The confirmed DELETE. A run may begin just now: what is busy is deleted a little later."""
        give_up = time.monotonic() + self.patience
        while True:
            answer = self.server.ask("DELETE", f"{path}?delete_automations=true")
            busy = answer.status == 409 and answer.body.get("code") == "session_busy"
            if not busy or time.monotonic() > give_up:
                return answer
            time.sleep(LOOK_SECONDS)


def source(message: dict[str, Any]) -> dict[str, Any]:
    """Where a message says that it comes from."""
    return message["metadata"].get("source") or {}
