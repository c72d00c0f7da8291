"""Suppress or deliver, case by case (rule 5.4)."""

import pytest

from agent_core.turn.judge import TOKEN, read_heartbeat_reply

pytestmark = pytest.mark.rule("5.4")

FULL, OVER = "x" * 300, "x" * 301

SUPPRESSED = {
    "the token alone": TOKEN,
    "with white space": f"\n  {TOKEN}\t\n",
    "emphasised with underscores": f"__{TOKEN}__",
    "quoted in another way": f"\u201c{TOKEN}\u201d",
    "bold with a full stop": f"**{TOKEN}.**",
    "with a Chinese full stop": f"{TOKEN}\u3002",
    "at both ends": f"{TOKEN} quiet {TOKEN}",
    "exactly 300 characters before": f"{FULL} {TOKEN}",
    "exactly 300 characters after": f"{TOKEN}\n{FULL}",
    "only white space": " \n ",
}
DELIVERED = {
    "news": ("The build is broken.", "The build is broken."),
    "301 characters before": (f"{OVER} {TOKEN}", OVER),
    "301 characters after": (f"{TOKEN} {OVER}", OVER),
    "lower case": ("heartbeat_ok", "heartbeat_ok"),
    "a longer word": ("HEARTBEAT_OKAY", "HEARTBEAT_OKAY"),
    "a longer word before": ("MY_HEARTBEAT_OK", "MY_HEARTBEAT_OK"),
    "a longer word with two underscores": ("HEARTBEAT_OK__X", "HEARTBEAT_OK__X"),
    "a longer word before two dashes": ("X--HEARTBEAT_OK", "X--HEARTBEAT_OK"),
    "another letter by an accent": ("HEARTBEAT_OK\u0301", "HEARTBEAT_OK\u0301"),
    "a path": ("HEARTBEAT_OK/x", "HEARTBEAT_OK/x"),
    "a variable": ("$HEARTBEAT_OK", "$HEARTBEAT_OK"),
    "in the middle": (f"say {TOKEN} now", f"say {TOKEN} now"),
}


def test_nobody_is_told() -> None:
    assert [what for what, reply in SUPPRESSED.items() if read_heartbeat_reply(reply, 300).deliver] == []


def test_people_are_told_without_the_token_at_an_end() -> None:
    verdicts = {what: read_heartbeat_reply(reply, 300) for what, (reply, _) in DELIVERED.items()}
    assert {what: (each.deliver, each.text) for what, each in verdicts.items()} == {
        what: (True, text) for what, (_, text) in DELIVERED.items()
    }


def test_the_bound_is_the_agents() -> None:
    told = [most for most in (0, 8, 9) if read_heartbeat_reply(f"nine char {TOKEN}", most).deliver]
    assert told == [0, 8]
    assert not read_heartbeat_reply(TOKEN, 0).deliver
