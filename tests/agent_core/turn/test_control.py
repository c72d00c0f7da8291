from __future__ import annotations

import threading
import time

import pytest

from agent_core.turn.control import Signal, TurnControl


@pytest.mark.parametrize("verb", ["cancel", "stop", "lose"])
def test_a_signal_wakes_a_sleeper_at_once(verb: str) -> None:
    control = TurnControl()
    threading.Timer(0.05, getattr(control, verb)).start()
    begun = time.monotonic()
    assert control.wait(10)
    assert time.monotonic() - begun < 1
    assert not TurnControl().wait(0.01)


def test_the_stronger_signal_stays() -> None:
    control = TurnControl()
    seen: list[Signal | None] = [control.signal]
    for verb in (control.stop, control.cancel, control.stop, control.lose, control.cancel):
        verb()
        seen.append(control.signal)
    assert seen == [None, Signal.STOP, Signal.CANCEL, Signal.CANCEL, Signal.LOSE, Signal.LOSE]


def test_a_late_listener_is_called_immediately_but_not_after_leaving() -> None:
    control = TurnControl()
    control.stop()
    woken: list[int] = []
    with control.waking(lambda: woken.append(1)):
        assert woken == [1]
        control.cancel()
        assert woken == [1, 1]
    control.lose()
    assert woken == [1, 1]


def test_the_deadline_is_counted_from_the_beginning() -> None:
    control = TurnControl(deadline_seconds=5)
    assert control.deadline is not None
    assert 4 < control.deadline - time.monotonic() <= 5
