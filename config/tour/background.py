"""The last act: a routine created in a chat, its isolated run and its update; a silent heartbeat, and one with news."""

import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from config.tour import texts
from config.tour.act import ENDED, Act, source
from config.tour.client import TourError

HEARTBEAT_SECONDS = 2
# active at any hour; off until the act enables it
HEARTBEAT_OFF = {"enabled": False, "interval_seconds": HEARTBEAT_SECONDS, "active_hours": [0, 24]}
JOB = "In the background, as an isolated routine: name the capital of France."
REMINDER = "With your next heartbeat, as an inline routine: remind me to water the plants."
WORD = "plants"
QUESTION = "What came of it? Quote it."
SILENT = "HEARTBEAT_OK"
HEADING = "## Background Updates"


@dataclass(kw_only=True)
class Background(Act):
    """Background work of an agent, and how a conversation learns of it."""

    title = "What happens in the background"
    needs_own_agent = True

    routine: dict[str, Any] = field(default_factory=dict)
    reply: str = ""  # of the routine's run

    @property
    def agent_path(self) -> str:
        """The path of the agent in the API."""
        return f"/api/agents/{self.agent}/"

    def take(self) -> None:
        """Take all steps in order. Raises TourError if one is impossible."""
        self._make_a_routine()
        self._wait_for_its_run()
        self._hear("job_completed")
        self._beat_silently()
        self._beat_with_news()
        self._hear("heartbeat_result")
        self._delete()

    def _make_a_routine(self) -> None:
        self.report.step("A routine that the agent makes in a chat, with its own tool")
        self.open_session()
        self._asked_for(JOB, "isolated")

    def _asked_for(self, text: str, mode: str) -> None:
        """Ask for a routine, and check that one was created."""
        self.say(text)
        made = list(self.server.every(f"{self.agent_path}routines/"))
        new = [each for each in made if each["id"] != self.routine.get("id")]
        if not self.report.check("it made one routine", len(new) == 1, made or "there is none"):
            raise TourError("no routine was created; the tour cannot continue")
        self.routine = new[0]
        self.report.saw("routine", f"{self.routine['id']}: {self.routine['title']}")
        wanted = {"execution_mode": mode, "source": "chat", "session": self.session["id"], "schedule": None}
        self.compare(f"{mode}, once, at home in this session", wanted, self.routine)

    def _wait_for_its_run(self) -> None:
        self.report.step("It runs in a session of its own, which knows nothing of the chat")
        before = self.messages()
        turn = self._wait_for_success()
        session = self.server.get(f"/api/sessions/{turn['session']}/")
        self.report.saw("session", f"{session['key']}, {session['state']}")
        self.compare("the session is the slot's, and archived", {"type": "job", "state": "archived"}, session)
        history = self.history(session["id"])
        said = {each["content"] for each in before if each["content"]}
        foreign = [each["content"] for each in history if each["content"] in said]
        self.report.check("nothing of the chat stands in it", history and not foreign, foreign)
        self.report.check("the chat's history did not change", self.messages() == before, "it did")

    def _wait_for_success(self) -> dict[str, Any]:
        """Wait until the routine's run has succeeded; returns its turn."""
        job = f"/api/routines/{self.routine['id']}/"
        run = self.until("the routine's run ended", lambda: self.ended_run(job))
        self.report.saw("run", f"{run['run_id']}, {run['duration_ms']} ms")
        if not self.succeeded("its run", run):
            raise TourError("no run succeeded; the tour cannot continue")
        turn = self.until("its turn ended", lambda: self.ended_turn(run["turn"]))
        self.reply = turn["reply"] or ""
        self.report.saw("agent", self.reply)
        return turn

    def _hear(self, event_type: str) -> None:
        self.report.step("The news waits in the mailbox, and comes with the next chat turn")
        mail = self._mail()
        if not self.report.check("one update waits", [each["state"] for each in mail] == ["pending"], mail):
            raise TourError("no update was deposited; the tour cannot continue")
        self.report.saw("update", f"[{mail[0]['event_type']}] {mail[0]['summary']}")
        self.report.check(f"it is a {event_type}", mail[0]["event_type"] == event_type, mail[0])
        held = mail[0]["detail"].strip() or mail[0]["summary"]  # a single sentence is the summary alone
        self.report.check("it holds the answer", held in self.reply, held)
        turn = self.say(QUESTION)
        told = [mail[0]["summary"], mail[0]["detail"]]
        self.report.check("the answer quotes it", texts.quotes(turn["reply"], told), turn["reply"])
        now = next(each for each in self._all_mail() if each["event_id"] == mail[0]["event_id"])
        self.compare("that turn acknowledged it", {"state": "acknowledged", "turn": turn["id"]}, now)
        self.report.check("nothing waits any more", not self._mail(), "something does")
        shown = [each["content"] for each in self.messages() if HEADING in each["content"]]
        self.report.check("people see their own words in the history", not shown, shown)

    def _all_mail(self) -> list[dict[str, Any]]:
        return list(self.server.every(f"{self.address}mailbox/"))

    def _mail(self) -> list[dict[str, Any]]:
        """Updates that were not shown yet."""
        return [each for each in self._all_mail() if each["state"] != "acknowledged"]

    def _beat_silently(self) -> None:
        self.report.step(f"A heartbeat every {HEARTBEAT_SECONDS} seconds; it finds nothing to tell")
        before = self.messages()
        self.server.patch(self.agent_path, {"heartbeat": {"enabled": True}})
        turn = self.until("a heartbeat ended", self._heartbeat)
        agent = self.server.patch(self.agent_path, {"heartbeat": {"enabled": False}})
        self.succeeded("the heartbeat", turn)
        self.report.saw("agent", turn["reply"])
        self.report.check(f"it says {SILENT}", SILENT in (turn["reply"] or ""), turn["reply"])
        primary = list(self.server.every(f"/api/sessions/{agent['primary_session']}/mailbox/"))
        self.report.check("nobody is told", not primary and not self._mail(), primary)
        self.report.check("the chat's history did not change", self.messages() == before, "it did")

    def _heartbeat(self) -> dict[str, Any] | None:
        """The first ended turn in the session of the heartbeat."""
        asked = urllib.parse.urlencode({"agent": self.agent, "type": "heartbeat"})
        for session in self.server.every(f"/api/sessions/?{asked}"):
            turns = self.server.every(f"/api/sessions/{session['id']}/turns/")
            ended = [turn for turn in turns if turn["state"] in ENDED]
            if ended:
                return min(ended, key=lambda turn: turn["id"])
        return None

    def _beat_with_news(self) -> None:
        self.report.step("An inline routine: due at once, it starts a heartbeat that has something to tell")
        self._asked_for(REMINDER, "inline")
        turn = self._wait_for_success()
        self.report.check("it was a heartbeat's turn", turn["kind"] == "heartbeat", turn["kind"])
        self.report.check(
            f"its answer speaks of {WORD}", texts.contains_word(turn["reply"], WORD), turn["reply"]
        )
        history = self.history(turn["session"])
        said = [each for each in history if each["turn"] == turn["id"] and source(each)]
        marks = [source(each)["kind"] for each in said]
        self.report.check("it is kept in the heartbeat's session", "heartbeat" in marks, marks)

    def _delete(self) -> None:
        self.report.step("Deleting the agent takes its routines and sessions along")
        blocked = self.server.ask("DELETE", self.agent_path)
        self.report.check("DELETE answers 409", blocked.status == 409, blocked)
        gone = self.delete(self.agent_path)
        self.report.check("the confirmed DELETE answers 200", gone.status == 200, gone)
        for what, path in (("session", self.address), ("routine", f"/api/routines/{self.routine['id']}/")):
            answer = self.server.ask("GET", path)
            self.report.check(f"the {what} is gone (404)", answer.status == 404, answer)
