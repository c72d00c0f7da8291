"""A worker that makes priced calls under the caps of its turns, until it ends or is killed.

`python -m tests.sessions_app.spending.spender <log> <plan>`. The plan, in JSON: `kinds`, each the ids of an agent, an
automation and a connection; `skip` of their calls, `calls` for each kind in turn; `seed`; `deaths`, the share of calls
in which it kills itself at one of POINTS; `halt`, the point at which it reads the pipe `<log>.pipe`.

It logs `begun <kind>` before a call, and `used <kind> <tokens> <micro-dollars>` when the model has answered.
"""

import json
import os
import random
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import django

MODEL = "work:gpt"
MOST_WRITTEN = 100  # tokens of a reply
BEFORE, RESERVED, ANSWERED, SETTLED = POINTS = ("before", "reserved", "answered", "settled")


class Busy(Exception):
    """What is left is reserved by other calls."""


def main(log: str, plan: str) -> None:
    django.setup()
    given = json.loads(plan)
    chance, calls = random.Random(given["seed"]), given["calls"]
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    turns: dict[int, Any] = {}
    for number in range(calls * len(given["kinds"])):
        dies_at = chance.choice(POINTS) if chance.random() < given["deaths"] else ""
        used = chance.randrange(1, 200), chance.randrange(1, MOST_WRITTEN)
        if number < given["skip"]:
            continue
        kind = number // calls
        turn = turns.get(kind) or turns.setdefault(kind, _turn(*given["kinds"][kind]))

        def at(point: str, dies_at: str = dies_at) -> None:
            if point == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if point == given["halt"]:
                Path(log).with_suffix(".pipe").read_text()

        os.write(out, f"begun {kind}\n".encode())
        _call(turn, used, kind, out, at)


def _turn(agent_id: int, job_id: str, connection_id: int) -> tuple[Any, Any]:
    """The request of a turn of an automation or routine, and its connection."""
    from agent_core.types import TurnRequest
    from automations.models import CronJob
    from sessions_app.agents.budgets import account_of
    from sessions_app.connections.usable import usable
    from sessions_app.models import Agent, Connection, Turn, TurnInput, UserLimits

    agent, job = Agent.objects.get(pk=agent_id), CronJob.objects.get(pk=job_id)
    given = TurnInput(automation_id=job.pk, automation_name=job.name, caps={job.pk: job.limits})
    turn = Turn(pk=os.getpid(), claim=uuid.uuid4(), origin_run=f"{job.pk}:1", metadata=given.to_json())
    account = account_of(turn, agent, UserLimits.objects.get(user=agent.owner_id).limits)
    request = TurnRequest(system_prompt="", history=(), message="", model=MODEL, account=account)
    return request, usable(Connection.objects.get(pk=connection_id))


def _call(turn: tuple[Any, Any], used: tuple[int, int], kind: int, out: int, at: Any) -> None:
    from agent_core.connections import CallSettings
    from agent_core.exceptions import CapReached
    from agent_core.llm.protocol import ModelCall, ModelReply
    from agent_core.turn.charge import Counted, charged
    from agent_core.types import Entry, Role, Usage

    request, connection = turn
    entries = (Entry(role=Role.USER, content="hello"),)
    call = ModelCall(system_prompt="", entries=entries, settings=CallSettings(max_tokens=MOST_WRITTEN))
    at(BEFORE)
    try:
        with charged(request, MODEL, connection, call, Counted(), _Patience().wait) as charge:
            at(RESERVED)
            usage = Usage(input_tokens=used[0], output_tokens=used[1], requests=1)
            micro = charge.took(ModelReply(text="Hi.", usage=usage)).usage.micro_usd
            os.write(out, f"used {kind} {sum(used)} {micro}\n".encode())
            at(ANSWERED)
        at(SETTLED)
    except (CapReached, Busy):
        pass


class _Patience:
    """Waits for what others have reserved, but not as long as for the dead."""

    def __init__(self) -> None:
        self._left = 5

    def wait(self, seconds: float) -> None:
        self._left -= 1
        if not self._left:
            raise Busy
        time.sleep(seconds / 50)


if __name__ == "__main__":
    main(*sys.argv[1:])
