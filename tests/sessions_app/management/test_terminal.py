"""What a terminal shows of a turn, in whatever order its pieces come."""

import io
from typing import Any

from interfaces.terminal.talk import Answer, Screen
from sessions_app.models import Event
from sessions_app.streams.items import Item

TURN = 7


def delta(text: str, step: int = 1, number: int = 1, **more: Any) -> Item:
    content = {"turn": TURN, "attempt": 1, "step": step, "try": number, "text": text} | more
    return Item(type="snapshot" if more else "delta", about=1, content=content)


def stored(kind: str, turn: int = TURN, **content: Any) -> Item:
    return Item(type=kind, about=1, event=Event(turn_id=turn, type=kind, content=content))


def said(text: str) -> Item:
    return stored("message", role="assistant", text=text)


CALL = stored("tool_call", name="count", arguments={"n": 1})
OUTPUT = stored("tool_output", name="count", outcome="ok", output="one\ntwo")
NOTES = '→ count {"n": 1}\n← count ok: one two\n'


SHOWN: list[tuple[list[Item], str]] = [
    ([delta("Let me "), delta("see."), CALL, OUTPUT, delta("One.", 2)], f"Let me see.\n{NOTES}One."),
    ([delta("Let me "), CALL, OUTPUT, delta("see."), delta("One.", 2)], f"Let me see.\n{NOTES}One."),
    ([CALL, OUTPUT, said("Let me see."), said("One.")], f"{NOTES}Let me see.\nOne.\n"),
    ([delta("Let me "), said("Let me see.")], "Let me see."),
    ([delta("Let me "), delta("Let us", number=2), said("Let us")], "Let me \n(begins again)\nLet us"),
    ([delta("A\n"), delta("\n\nB", 2), said("A\n\nB")], "A\nB"),
    ([delta("A"), delta("A b", earlier=""), delta(" c"), said("A b c")], "A b c"),
    ([delta("A\n\nB", 2, earlier="A\n\n"), said("A"), said("B")], "A\nB"),
    ([said("ok"), said("ok")], "ok\n"),
    ([stored("message", turn=8, role="assistant", text="other"), stored("turn_end")], ""),
    ([delta("\x1b[31mred\x07"), said("[31mred")], "[31mred"),
]


def test_each_text_is_shown_once_and_in_order() -> None:
    for items, shown in SHOWN:
        out = io.StringIO()
        answer = Answer(turn=TURN, screen=Screen(to=out))
        ends = [answer.hear(item) for item in items]
        assert out.getvalue() == shown
        assert ends == [False] * (len(items) - 1) + [items[-1].type == "turn_end"]


def test_text_that_comes_after_a_shown_note_is_repeated_whole() -> None:
    out = io.StringIO()
    answer = Answer(turn=TURN, screen=Screen(to=out))
    answer.hear(delta("Let me "))
    answer.hear(CALL)
    assert answer.holds_notes
    answer.show_notes()
    answer.hear(delta("see."))
    answer.hear(said("Let me see."))
    assert out.getvalue() == 'Let me \n→ count {"n": 1}\nLet me see.'
