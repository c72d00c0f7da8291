"""`manage.py chat` in a real terminal, with a worker and a model over HTTP."""

import subprocess
import sys
from typing import Any

import pytest

from agent_core.llm.protocol import ModelReply
from sessions_app.models import Agent, Engine, Session, Turn
from tests.conftest import Person, new_person
from tests.fleet import Fleet, until
from tests.plugins import calls
from tests.sessions_app.turns.test_consent import erase
from tests.terminal import CTRL_C, Terminal
from tests.up import run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]


@pytest.fixture
def ada(person_with_server: Person, fleet: Fleet) -> Person:
    fleet.worker()
    return person_with_server


def pipe(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "manage.py", "chat", *arguments, input=text, timeout=60)


@pytest.mark.long("a worker and the program of a terminal start")
def test_an_answer_streams_and_ctrl_c_stops_it_then_leaves(ada: Person, model_server: Any) -> None:
    with Terminal(arguments=("chat",)) as terminal:
        terminal.shows("Talking with demo")
        terminal.shows("you> ")
        assert not Session.objects.filter(type="sub").exists()  # nothing is made before the first message
        terminal.type("hello [[reply:How are you]]")
        terminal.shows("How are you")
        terminal.shows("you> ", 2)
        terminal.type("[[pause:a]] [[reply:One and two and three and four]]")
        terminal.shows("\nOne")
        shown = terminal.text.rpartition("you> ")[2].partition("\n")[2]
        assert "four" not in shown.splitlines()[0]
        terminal.press(CTRL_C)
        terminal.shows("Stopping …")
        terminal.shows("you> ", 3)
        assert Turn.objects.latest("pk").state == "cancelled"
        terminal.press(CTRL_C)
        assert terminal.ends() == 0
        session = Session.objects.get(type="sub")
        assert f"manage.py chat --session {session.pk}" in terminal.text
        assert terminal.text.count("How are you") == 2  # as typed, and once as an answer
        assert "Traceback" not in terminal.text


@pytest.mark.full
def test_calls_are_shown_and_a_dangerous_one_asks(ada: Person, model_server: Any, fleet: Fleet) -> None:
    session = ada.session()
    model_server.answer_with(
        erase("disk"),
        ModelReply(text="May I?"),
        erase("disk"),
        ModelReply(text="It is gone."),
        erase("tape"),
        ModelReply(text="And now?"),
        ModelReply(text="As you like."),
    )
    with Terminal(arguments=("chat", "--session", str(session.pk))) as terminal:
        terminal.shows("you> ")
        terminal.type("erase it")
        terminal.shows('→ erase {"name": "disk"}')
        terminal.shows("← erase")
        terminal.shows("erase(name='disk')")
        terminal.shows("Allow this? [y/n] ")
        terminal.type("perhaps")
        terminal.shows("Type y or n")
        terminal.type("y")
        terminal.shows("It is gone.")
        assert calls(fleet.folder, "disk") == 1
        terminal.shows("you> ", 2)
        terminal.type("erase that, too")
        terminal.shows("erase(name='tape')")
        terminal.type("n")
        terminal.shows("As you like.")
        assert calls(fleet.folder, "tape") == 0
        terminal.shows("you> ", 3)
        terminal.type("/help")
        terminal.shows("/quit")
        terminal.type("/quit")
        assert terminal.ends() == 0
    for words in ("May I?", "It is gone.", "And now?", "As you like."):
        assert terminal.text.count(words) == 1, terminal.text


@pytest.mark.full
def test_a_question_of_a_plan_is_answered_at_the_prompt(ada: Person) -> None:
    Agent.objects.update(engine=Engine.PLANNER)
    with Terminal(arguments=("chat", "--agent", "ada/demo")) as terminal:
        terminal.shows("you> ")
        terminal.type("ask me which colour, then paint the door")
        terminal.shows("Which colour?")
        terminal.shows("answer> ")
        terminal.type("")
        terminal.shows("The question stays open.")
        terminal.shows("you> ", 2)
        terminal.type("blue")
        terminal.shows("you> ", 3)
        assert Turn.objects.filter(content="blue", state="succeeded").exists()


@pytest.mark.full
def test_what_was_said_meanwhile_is_shown(ada: Person) -> None:
    session = ada.session()
    with Terminal(arguments=("chat", "--session", str(session.pk))) as terminal:
        terminal.shows("you> ")
        assert pipe("[[reply:from elsewhere]]", "--session", str(session.pk)).returncode == 0
        terminal.type("")
        terminal.shows("[meanwhile]\nfrom elsewhere")
        terminal.type("")
        terminal.shows("you> ", 3)
        assert terminal.text.count("from elsewhere") == 1


@pytest.mark.full
def test_without_a_terminal_only_the_answer_is_printed(ada: Person) -> None:
    done = pipe("hello\nthere [[reply:two\nlines \x1b[31mred]]\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "two\nlines [31mred\n", "")
    failed = pipe("[[fail:400]]")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "rejected the request" in failed.stderr


@pytest.mark.full
def test_a_message_of_a_pipe_is_cancelled_after_a_bound(ada: Person, model_server: Any) -> None:
    done = pipe("[[hold:never]] hello", "--wait", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no answer within 1 seconds" in done.stderr
    until(lambda: Turn.objects.get().state == "cancelled")


@pytest.mark.full
def test_wrong_names_are_one_line(ada: Person) -> None:
    new_person("bob")
    for arguments, text in (
        ((), "several agents; name one with --agent, such as ada/demo, bob/demo"),
        (("--agent", "nobody"), "there is no agent 'nobody'"),
        (("--session", "00000000-0000-4000-8000-000000000000"), "there is no session"),
        (("--session", str(ada.session().pk), "--agent", "bob/demo"), "there is no session"),
    ):
        done = pipe("hello", *arguments)
        assert done.returncode == 1
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert "the message is empty" in pipe("  \n", "--agent", "ada/demo").stderr
    assert pipe("x" * 100_002, "--agent", "ada/demo").returncode == 1
