"""The story of the tour: remember, make an appointment, wait, ask, look, delete.

Everything is read back through the API; nothing is taken on trust, and each check compares two answers of it.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from config.tour import texts
from config.tour.client import Answer, Server, TourError
from config.tour.report import Report

COLOUR = "blue"
FACT = f"My favourite colour is {COLOUR}."
NAME = "Favourite colour"
TASK = "What is my favourite colour? Answer in one short sentence."
QUESTION = "What did the automation say last? Quote it."
EVERY_SECONDS = 5
LOOK_SECONDS = 0.3
ENDED = {"succeeded", "failed", "cancelled", "merged"}


@dataclass(kw_only=True)
class Tour:
    """One tour; the session's key is chosen before it exists, so that it can be found and removed."""

    server: Server
    report: Report
    agent: str
    key: str
    patience: float  # seconds that one turn or run may take
    session: dict[str, Any] = field(default_factory=dict)
    automation: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The session's path."""
        return f"/api/sessions/{self.session['id']}/"

    @property
    def job(self) -> str:
        """The automation's path."""
        return f"/api/automations/{self.automation['id']}/"

    def take(self) -> None:
        """All steps in order. TourError when one cannot be taken."""
        self._remember()
        self._automate()
        self._wait_for_the_run()
        self._ask_about_it()
        self._read_the_history()
        self._read_the_run()
        self._delete()

    def _remember(self) -> None:
        self.report.step("A session, and something to remember")
        given = {"agent": self.agent, "key": self.key, "title": "Tour"}
        self.session = self.server.make("/api/sessions/", given)
        self.report.saw("session", f"{self.session['id']} ({self.session['key']})")
        turn = self._say(FACT)
        self.report.check("the turn succeeded", turn["state"] == "succeeded", _state(turn))

    def _automate(self) -> None:
        self.report.step(f"An automation of this session, every {EVERY_SECONDS} seconds")
        schedule = {"kind": "every", "seconds": EVERY_SECONDS}
        given = {"name": NAME, "message": TASK, "schedule": schedule}
        self.automation = self.server.make(f"{self.address}automations/", given)
        self.report.saw("automation", f"{self.automation['id']}: {TASK}")
        self.report.saw("next run", self.automation["next_run_at"])
        listed = [each["id"] for each in self.server.every(f"{self.address}automations/")]
        self.report.check("the session lists it", listed == [self.automation["id"]], listed)

    def _wait_for_the_run(self) -> None:
        self.report.step("Beat finds it due, a worker runs it as a turn of the session")
        found = self._until("a run of the automation ended", self._ended_run)
        self.run = self.server.get(f"/api/runs/{found['run_id']}/")
        self.report.saw("run", f"{self.run['run_id']}, due {self.run['scheduled_for']}")
        self.report.saw("took", f"{self.run['duration_ms']} ms, queued {self.run['lag_ms']} ms late")
        good = self.run["state"] == "succeeded"
        if not self.report.check("its run succeeded", good, f"{self.run['state']}: {self.run['error']}"):
            raise TourError("without a run that succeeded there is nothing more to see")
        turn = self._until("its turn ended", lambda: self._ended_turn(self.run["turn"]))
        self.report.saw("agent", turn["reply"])
        ours = (turn["kind"], turn["session"]) == ("automation", self.session["id"])
        self.report.check("it was a turn of this session", ours, f"{turn['kind']} of {turn['session']}")
        self.report.check(
            f"its answer knows the colour ({COLOUR})", texts.knows(turn["reply"], COLOUR), turn["reply"]
        )

    def _ask_about_it(self) -> None:
        self.report.step("The next chat turn knows what the automation said")
        turn = self._say(QUESTION)
        self.report.check("the turn succeeded", turn["state"] == "succeeded", _state(turn))
        said = [
            message["content"]
            for message in self._messages()
            if message["role"] == "assistant" and _source(message).get("id") == self.automation["id"]
        ]
        self.report.check(
            "its answer quotes the automation", texts.quotes(turn["reply"], said), turn["reply"]
        )

    def _read_the_history(self) -> None:
        self.report.step("The history: a readable trigger, a normal answer, no instructions")
        messages = self._messages()
        numbers = [message["seq"] for message in messages]
        self.report.check(
            "it is numbered without a gap", numbers == list(range(1, len(numbers) + 1)), numbers
        )
        ours = [message for message in messages if message["turn"] == self.run["turn"]]
        trigger = next((message for message in ours if message["role"] == "user"), {})
        self.report.saw("trigger", trigger.get("content", "(none)"))
        readable = f"Scheduled automation triggered: {NAME}\n\n{TASK}"
        shown = trigger.get("content")
        self.report.check("the trigger is what people can read", shown == readable, shown)
        self._compare("its metadata names automation, run and prompt", self._marks(), trigger.get("metadata"))
        answers = [message for message in ours if message["role"] == "assistant" and message["content"]]
        source = _source(answers[-1]) if answers else {}
        wanted = {
            "kind": "automation",
            "id": self.automation["id"],
            "name": NAME,
            "run_id": self.run["run_id"],
        }
        self._compare("the answer is marked with its source", wanted, source)
        self._look_for_the_template(messages)

    def _marks(self) -> dict[str, Any]:
        return {
            "_automation_turn": True,
            "automation_id": self.automation["id"],
            "automation_name": NAME,
            "automation_run_id": self.run["run_id"],
            "automation_prompt_ref": self.run["prompt_ref"],
        }

    def _look_for_the_template(self, messages: list[dict[str, Any]]) -> None:
        sentences = texts.template_sentences(
            self.run["rendered_prompt"] or "", self.run["prompt_variables"] or {}
        )
        self.report.check("the prompt has sentences of its template", sentences, "none found")
        found = texts.leaked(sentences, messages)
        self.report.check(f"none of its {len(sentences)} sentences stands in the history", not found, found)

    def _read_the_run(self) -> None:
        self.report.step("The run record: the prompt that the model was shown, and its hash")
        reference, prompt = self.run["prompt_ref"] or {}, self.run["rendered_prompt"] or ""
        self.report.saw("prompt", f"{reference.get('id')} version {reference.get('version')}")
        self.report.saw("sha256", reference.get("sha256"))
        self.report.check("the rendered prompt holds the task", TASK in prompt, prompt[:200])
        computed = hashlib.sha256(prompt.encode()).hexdigest()
        self.report.check("the hash is that of the prompt", computed == reference.get("sha256"), computed)

    def _delete(self) -> None:
        self.report.step("Deleting the session: blocked, then confirmed")
        blocked = self.server.ask("DELETE", self.address)
        self.report.check("DELETE answers 409", blocked.status == 409, blocked)
        wanted = {
            "deleted": False,
            "blocked_by_automations": True,
            "automations": [{"id": self.automation["id"], "name": NAME, "enabled": True}],
        }
        self._compare("with the automations in the way", wanted, blocked.body)
        still = self.server.ask("GET", self.address)
        self.report.check("the session is still there", still.status == 200, still)
        gone = self._delete_confirmed()
        self.report.check("the confirmed DELETE answers 200", gone.status == 200, gone)
        wanted = {"deleted": True, "deleted_automations": [self.automation["id"]]}
        self._compare("with the automations that went along", wanted, gone.body)
        for what, path in (("session", self.address), ("automation", self.job)):
            answer = self.server.ask("GET", path)
            self.report.check(f"the {what} is gone (404)", answer.status == 404, answer)

    def _delete_confirmed(self) -> Answer:
        """A run may begin just now; a busy session is deleted a little later."""
        give_up = time.monotonic() + self.patience
        while True:
            answer = self.server.ask("DELETE", f"{self.address}?delete_automations=true")
            busy = answer.status == 409 and answer.body.get("code") == "session_busy"
            if not busy or time.monotonic() > give_up:
                return answer
            time.sleep(LOOK_SECONDS)

    def _compare(self, what: str, wanted: dict[str, Any], found: Any) -> None:
        """Each wanted key has its value; more keys may be there."""
        known = found if isinstance(found, dict) else {}
        wrong = {name: known.get(name) for name, value in wanted.items() if known.get(name) != value}
        self.report.check(what, not wrong, f"found {wrong}")

    def _say(self, text: str) -> dict[str, Any]:
        """Send a message and wait for the end of its turn."""
        self.report.saw("you", text)
        answer = self.server.ask("POST", f"{self.address}messages/", {"content": text}, Prefer="wait=60")
        if answer.status not in {200, 202}:
            raise TourError(f"the message was refused: {answer}")
        turn_id = answer.body["id"]
        turn = self._until("the turn ended", lambda: self._ended_turn(turn_id))
        self.report.saw("agent", turn["reply"] or f"({turn['state']})")
        return turn

    def _ended_turn(self, turn_id: int) -> dict[str, Any] | None:
        turn: dict[str, Any] = self.server.get(f"/api/turns/{turn_id}/")
        return turn if turn["state"] in ENDED else None

    def _ended_run(self) -> dict[str, Any] | None:
        """The oldest run that was run to an end."""
        runs = [run for run in self.server.every(f"{self.job}runs/") if run["state"] in ENDED]
        return runs[-1] if runs else None

    def _until(self, what: str, look: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
        give_up = time.monotonic() + self.patience
        while (found := look()) is None:
            if time.monotonic() > give_up:
                self.report.check(what, holds=False, why=f"not within {self.patience:.0f} s")
                raise TourError("waited too long")
            time.sleep(LOOK_SECONDS)
        return found

    def _messages(self) -> list[dict[str, Any]]:
        return list(self.server.every(f"{self.address}messages/"))


def _state(turn: dict[str, Any]) -> str:
    return f"{turn['state']}: {turn['error']}"


def _source(message: dict[str, Any]) -> dict[str, Any]:
    return message["metadata"].get("source") or {}
