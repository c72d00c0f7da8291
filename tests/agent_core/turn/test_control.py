from __future__ import annotations

import threading

from agent_core.turn.control import Signal, TurnControl


def test_the_stronger_signal_stays_and_wakes_who_waits() -> None:
    control = TurnControl()
    assert not control.wait(0.01)
    threading.Timer(0.05, control.lose).start()
    assert control.wait(10)
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
