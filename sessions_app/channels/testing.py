"""Tests that every channel must pass: subclass `ChannelContract` in a test module, and give it a stage.

    class TestPigeon(ChannelContract):
        @pytest.fixture
        def stage(self):
            with loft() as loft:
                yield Stage(
                    channel=Pigeon(),
                    address=loft.address,
                    bad=("a crow's nest",),
                    taken=loft.taken,
                    trouble=loft.trouble,
                )

The receiver must be a real server on this machine, not a mock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from sessions_app.channels.base import NAME, BadAddress, Channel, Parcel, Unsent

SECRET = "whsec_c2VjcmV0LW9mLXRoZS1raXQtc2VjcmV0LW9mLXRoZS0="  # noqa: S105 - only for tests
TEXTS = (
    "Good morning!",
    "多行\nzwei Zeilen\n\n ends with spaces  x",
    "long, " * 2_500 + "end",
    '<b>&amp; "quoted" 🕘',
)
SECONDS = 1.0
SLACK = 3.0  # seconds that a channel may exceed its time


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A message that the receiver accepted; `key` is None when the service has no field for it."""

    key: str | None
    text: str


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A channel and its receiver. `bad` are addresses to reject, `taken` returns the accepted messages.

    `trouble(kind)` is a context in which the receiver `refuses` (answers, but accepts nothing), `hangs` (never answers)
    or is `gone` (the port is closed).
    """

    channel: Channel
    address: str
    bad: tuple[str, ...]
    taken: Callable[[], list[Taken]]
    trouble: Callable[[str], AbstractContextManager[object]]


def parcel(stage: Stage, text: str = TEXTS[0], key: str = "msg_1", attempt: int = 1) -> Parcel:
    """A parcel for the stage's receiver."""
    return Parcel(
        key=key,
        address=stage.address,
        text=text,
        secret=SECRET,
        attempt=attempt,
        created_at=datetime(2026, 11, 22, 9, tzinfo=UTC),
        session_id="00000000-0000-0000-0000-000000000001",
        session_key="web:1",
        agent="kit",
        seconds=SECONDS,
    )


class ChannelContract:
    """The tests of every channel."""

    def test_its_name_is_one_that_sessions_may_have(self, stage: Stage) -> None:
        assert NAME.fullmatch(stage.channel.name)
        assert stage.channel.name != "web"

    def test_it_knows_its_addresses(self, stage: Stage) -> None:
        stage.channel.check(stage.address)
        for address in stage.bad:
            assert _refusal(stage, address), f"{address!r} is accepted, or rejected without a reason"

    def test_its_place_is_the_same_for_the_same_address(self, stage: Stage) -> None:
        assert stage.channel.place(stage.address) == stage.channel.place(stage.address)

    def test_a_text_arrives_as_it_is(self, stage: Stage) -> None:
        for number, text in enumerate(TEXTS):
            stage.channel.send(parcel(stage, text, key=f"msg_{number}"))
        assert [taken.text for taken in stage.taken()] == list(TEXTS)

    def test_another_attempt_bears_the_same_key(self, stage: Stage) -> None:
        stage.channel.send(parcel(stage))
        stage.channel.send(parcel(stage, attempt=2))
        first, second = stage.taken()
        assert first.key == second.key
        assert first.key in ("msg_1", None)

    def test_a_receiver_in_trouble_is_told_in_plain_words_and_in_time(self, stage: Stage) -> None:
        for kind in ("refuses", "hangs", "gone"):
            with stage.trouble(kind):
                began = time.monotonic()
                failure = _failure(stage)
                took = time.monotonic() - began
            assert took < SECONDS + SLACK, f"{kind}: it took {took:.1f} s"
            assert not failure.final, f"{kind}: it is temporary"
            assert str(failure), kind
            for hidden in (SECRET, SECRET.removeprefix("whsec_"), TEXTS[0]):
                assert hidden not in str(failure), kind
        assert stage.taken() == []

    def test_after_trouble_it_sends_again(self, stage: Stage) -> None:
        with stage.trouble("refuses"):
            _failure(stage)
        stage.channel.send(parcel(stage, attempt=2))
        assert [taken.text for taken in stage.taken()] == [TEXTS[0]]


def _refusal(stage: Stage, address: str) -> str:
    try:
        stage.channel.check(address)
    except BadAddress as error:
        return str(error)
    return ""


def _failure(stage: Stage) -> Unsent:
    try:
        stage.channel.send(parcel(stage))
    except Unsent as failure:
        return failure
    raise AssertionError("send() returned without Unsent")
