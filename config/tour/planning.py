"""The second act: an agent that plans, asks a question, waits, and continues with the reply."""

from dataclasses import dataclass, field
from typing import Any

from config.tour import texts
from config.tour.act import Act
from config.tour.client import TourError

REQUEST = "First list my automations, then ask me which colour the cover of the report should have, then tell me both."
REPLY = "blue"
CLEAR = "/clear"


@dataclass(kw_only=True)
class Planning(Act):
    """A plan that waits for the reply to a question and then continues."""

    title = "An agent that plans, asks and continues"
    needs_own_agent = True

    execution: dict[str, Any] = field(default_factory=dict)

    def take(self) -> None:
        """Take all steps in order. Raises TourError if one is impossible."""
        self._ask_for_a_plan()
        self._look_at_it()
        self._reply()
        self._begin_anew()
        self._delete()

    def _ask_for_a_plan(self) -> None:
        self.report.step("A request that needs a question")
        self.server.patch(f"/api/agents/{self.agent}/", {"engine": "planner"})
        self.open_session()
        turn = self.say(REQUEST)
        asked = self.server.get(self.address)["waiting"]
        if not self.report.check("the session shows a waiting question", bool(asked), "it shows none"):
            raise TourError("no question was asked; the tour cannot continue")
        waiting = asked[0]
        self.report.check("the agent asked it", waiting["question"] in (turn["reply"] or ""), turn["reply"])
        self.execution = self.server.get(f"/api/executions/{waiting['execution']}/")

    def _look_at_it(self) -> None:
        self.report.step("Its plan, and its observations so far")
        for step in self.execution["steps"]:
            self.report.saw("step", f"{step['id']} [{step['status']}] {step['type']}: {step['title']}")
        kinds = [each["kind"] for each in self.execution["observations"]]
        self.report.check(
            "it waits", self.execution["status"].startswith("waiting"), self.execution["status"]
        )
        self.report.check("it read live state", any(kind.startswith("live:") for kind in kinds), kinds)
        done = [step for step in self.execution["steps"] if step["status"] in {"done", "running"}]
        self.report.check("it reached its question", bool(done), self.execution["steps"])

    def _reply(self) -> None:
        self.report.step("A reply in one word: the plan continues where it stopped")
        turn = self.say(REPLY)
        now = self.server.get(f"/api/executions/{self.execution['id']}/")
        wanted = {"status": "completed", "reply": REPLY, "final_answer": turn["reply"]}
        self.compare("the execution is complete", wanted, now)
        self.report.check(
            f"the answer contains {REPLY!r}", texts.contains_word(turn["reply"], REPLY), turn["reply"]
        )
        self.report.check("no question waits", not self.server.get(self.address)["waiting"], "one waits")

    def _begin_anew(self) -> None:
        self.report.step(f"{CLEAR}: the conversation starts over, and nothing is deleted")
        before = self.messages()
        self.server.patch(f"{self.address}memory/", {"current_goal": "a report with a blue cover"})
        self.say(CLEAR)
        memory = self.server.get(f"{self.address}memory/")
        self.compare("its memory is empty", {"current_goal": ""}, memory)
        self.report.check("its history is unchanged", self.messages()[: len(before)] == before, "it changed")

    def _delete(self) -> None:
        self.report.step("Deleting the session deletes its executions")
        gone = self.delete(self.address)
        self.report.check("DELETE answers 200", gone.status == 200, gone)
        answer = self.server.ask("GET", f"/api/executions/{self.execution['id']}/")
        self.report.check("the execution is gone (404)", answer.status == 404, answer)
        self.server.patch(f"/api/agents/{self.agent}/", {"engine": "chat"})
