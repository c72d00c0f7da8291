"""The first act: an automation of a conversation runs, and the conversation knows of it.

Everything is read back through the API: each check compares two of its responses.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from config.tour import texts
from config.tour.act import Act, source
from config.tour.client import TourError

COLOUR = "blue"
FACT = f"My favourite colour is {COLOUR}."
NAME = "Favourite colour"
TASK = "What is my favourite colour? Answer in one short sentence."
QUESTION = "What did the automation say last? Quote it."
EVERY_SECONDS = 5


@dataclass(kw_only=True)
class Appointments(Act):
    """An automation of a conversation: each knows what the other said."""

    title = "An automation that keeps its appointments"

    automation: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def job(self) -> str:
        """The path of the automation in the API."""
        return f"/api/automations/{self.automation['id']}/"

    def take(self) -> None:
        """Take all steps in order. Raises TourError if one is impossible."""
        self._remember()
        self._automate()
        self._wait_for_the_run()
        self._ask_about_it()
        self._read_the_history()
        self._read_the_run()
        self._delete()

    def _remember(self) -> None:
        self.report.step("A session, and something to remember")
        self.open_session()
        self.say(FACT)

    def _automate(self) -> None:
        self.report.step(f"An automation of this session, every {EVERY_SECONDS} seconds")
        schedule = {"kind": "every", "seconds": EVERY_SECONDS}
        given = {"name": NAME, "message": TASK, "schedule": schedule}
        self.automation = self.server.create(f"{self.address}automations/", given)
        self.report.saw("automation", f"{self.automation['id']}: {TASK}")
        self.report.saw("next run", self.automation["next_run_at"])
        listed = [each["id"] for each in self.server.every(f"{self.address}automations/")]
        self.report.check("the session lists it", listed == [self.automation["id"]], listed)

    def _wait_for_the_run(self) -> None:
        self.report.step("Beat finds it due, a worker runs it as a turn of the session")
        found = self.until("a run of the automation ended", lambda: self.ended_run(self.job))
        self.run = self.server.get(f"/api/runs/{found['run_id']}/")
        self.report.saw("run", f"{self.run['run_id']}, due {self.run['scheduled_for']}")
        self.report.saw(
            "took", f"{self.run['duration_ms']} ms, queued {self.run['lag_ms']} ms after its time"
        )
        if not self.succeeded("its run", self.run):
            raise TourError("no run succeeded; the tour cannot continue")
        turn = self.until("its turn ended", lambda: self.ended_turn(self.run["turn"]))
        self.report.saw("agent", turn["reply"])
        ours = (turn["kind"], turn["session"]) == ("automation", self.session["id"])
        self.report.check("it was a turn of this session", ours, f"{turn['kind']} of {turn['session']}")
        self.report.check(
            f"its answer knows the colour ({COLOUR})",
            texts.contains_word(turn["reply"], COLOUR),
            turn["reply"],
        )

    def _ask_about_it(self) -> None:
        self.report.step("The next chat turn knows what the automation said")
        turn = self.say(QUESTION)
        said = [
            message["content"]
            for message in self.messages()
            if message["role"] == "assistant" and source(message).get("id") == self.automation["id"]
        ]
        self.report.check(
            "its answer quotes the automation", texts.quotes(turn["reply"], said), turn["reply"]
        )

    def _read_the_history(self) -> None:
        self.report.step("The history: a readable trigger, a normal answer, no instructions")
        messages = self.messages()
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
        self.compare("its metadata names automation, run and prompt", self._marks(), trigger.get("metadata"))
        answers = [message for message in ours if message["role"] == "assistant" and message["content"]]
        found = source(answers[-1]) if answers else {}
        wanted = {
            "kind": "automation",
            "id": self.automation["id"],
            "name": NAME,
            "run_id": self.run["run_id"],
        }
        self.compare("the answer is marked with its source", wanted, found)
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
        self.compare("with the automations in the way", wanted, blocked.body)
        still = self.server.ask("GET", self.address)
        self.report.check("the session is still there", still.status == 200, still)
        gone = self.delete(self.address)
        self.report.check("the confirmed DELETE answers 200", gone.status == 200, gone)
        wanted = {"deleted": True, "deleted_automations": [self.automation["id"]]}
        self.compare("with the automations that went along", wanted, gone.body)
        for what, path in (("session", self.address), ("automation", self.job)):
            answer = self.server.ask("GET", path)
            self.report.check(f"the {what} is gone (404)", answer.status == 404, answer)
