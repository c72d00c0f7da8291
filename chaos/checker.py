"""Decide from what clients and servers outside saw whether a system kept its promises.

`python -m chaos.checker FILE …` imports nothing of the project, and knows the system by its answers alone. A history
is JSON lines, one for each event, in the order in which one process saw them:

    {"process": "writer-3", "at": 12.5, "type": "invoke", "op": "append", "session": "s1", "value": "m-17"}
    {"process": "writer-3", "at": 12.9, "type": "ok", "op": "append", "session": "s1", "value": "m-17"}

`at` is in seconds, of one monotonic clock for all. A process has one operation at a time: an `invoke`, then `ok`,
`fail` (surely not done) or `unknown` (nobody can say). The operations, and the further fields of their `ok`:

    append   `value`: a text that is sent once in its session
    read     `values`: all texts of the session in its order, those that wait included
    stream   `ids`: the numbers of the events that one stream showed; `expected`: those that it was to show
    turns    `spans`: [began, ended] of each turn of the session, in seconds of the database's clock; null: it has not
    runs     `runs`: {"slot": key, "state": state} of each run of an automation
    effect   (only `ok`, by the server outside) `slot`: the key of the slot, `key`: the idempotency key of the call
    deliver  (only `ok`, by the server outside) `key`: the key of the delivery, `of`: what was delivered
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

Event = dict[str, Any]
ENDS = ("ok", "fail", "unknown")
LEAST_OK = 0.8  # share of operations, so that a dead system does not pass


@dataclass(frozen=True)
class Anomaly:
    """One thing that must not be. `name` is its kind."""

    name: str
    detail: str


@dataclass
class Operation:
    """What a process asked for, and how it ended."""

    op: str
    began: float
    ended: float
    end: str
    event: Event


@dataclass
class History:
    """All operations, by their kind."""

    by_op: dict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    broken: list[Anomaly] = field(default_factory=list)

    def of(self, op: str, *ends: str) -> list[Operation]:
        """The operations of this kind that ended so."""
        return [each for each in self.by_op[op] if each.end in ends]

    def sessions(self, op: str, *ends: str) -> dict[str, list[Operation]]:
        """The same, by their session, in the order in which they began."""
        found: dict[str, list[Operation]] = defaultdict(list)
        for each in sorted(self.of(op, *ends), key=lambda each: each.began):
            found[each.event["session"]].append(each)
        return found


def read_history(events: Iterable[Event]) -> History:
    """Join each `invoke` with its end. One that never ended is `unknown`: its process died."""
    history, pending = History(), {}
    for event in events:
        process, kind = event["process"], event["type"]
        if kind == "invoke":
            if process in pending:
                history.broken.append(Anomaly("history", f"{process} began twice"))
            pending[process] = event
        elif kind in ENDS:
            asked = pending.pop(process, event)
            done = Operation(event["op"], asked["at"], event["at"], kind, asked | event)
            history.by_op[event["op"]].append(done)
        else:
            history.broken.append(Anomaly("history", f"unknown type {kind!r}"))
    for asked in pending.values():
        history.by_op[asked["op"]].append(Operation(asked["op"], asked["at"], float("inf"), "unknown", asked))
    return history


def check(events: Iterable[Event]) -> list[Anomaly]:
    """All that must not be; empty: every promise was kept."""
    history = read_history(events)
    rules = (_appends, _orders, _reads, _own_writes, _streams, _turns, _effects, _slots, _deliveries, _alive)
    return [*history.broken, *(found for rule in rules for found in rule(history))]


def _appends(history: History) -> Iterator[Anomaly]:
    """What was accepted is there once, and what was refused or never sent is not there."""
    written = history.sessions("append", *ENDS)
    for session, reads in history.sessions("read", "ok").items():
        last = reads[-1]
        seen: Counter[str] = Counter(last.event["values"])
        states = {each.event["value"]: each for each in written.get(session, [])}
        for value, one in states.items():
            if one.end == "ok" and one.ended < last.began and not seen[value]:
                yield Anomaly("lost", f"{session}: {value} was accepted and is not there")
        for value, count in seen.items():
            if count > 1:
                yield Anomaly("doubled", f"{session}: {value} is there {count} times")
            if value not in states:
                yield Anomaly("phantom", f"{session}: nobody wrote {value}")
            elif states[value].end == "fail":
                yield Anomaly("refused but stored", f"{session}: {value}")


def _orders(history: History) -> Iterator[Anomaly]:
    """Of two appends, of which one was accepted before the other began, the first stands first."""
    reads = history.sessions("read", "ok")
    for session, appends in history.sessions("append", "ok").items():
        places = (
            {value: n for n, value in enumerate(reads[session][-1].event["values"])}
            if session in reads
            else {}
        )
        there = [each for each in appends if each.event["value"] in places]
        latest = -1
        for later in there:  # in the order in which they began
            before = [places[each.event["value"]] for each in there if each.ended < later.began]
            latest = max([latest, *before])
            if latest > places[later.event["value"]]:
                yield Anomaly(
                    "out of order", f"{session}: {later.event['value']} stands before what was there already"
                )


def _reads(history: History) -> Iterator[Anomaly]:
    """Of two reads one after the other, the later shows what the earlier showed, in its order."""
    for session, reads in history.sessions("read", "ok").items():
        for earlier, later in pairwise(sorted(reads, key=lambda each: each.ended)):
            if earlier.ended >= later.began:
                continue
            before, after = earlier.event["values"], later.event["values"]
            if missing := [value for value in before if value not in set(after)]:
                yield Anomaly("went back", f"{session}: {missing[0]} was shown, and later not")
            elif [value for value in after if value in set(before)] != before:
                yield Anomaly("changed order", f"{session}: two reads differ in their order")


def _own_writes(history: History) -> Iterator[Anomaly]:
    """A process reads what it wrote before."""
    wrote = defaultdict(list)
    for each in history.of("append", "ok"):
        wrote[each.event["process"], each.event["session"]].append(each)
    for read in history.of("read", "ok"):
        seen = set(read.event["values"])
        for each in wrote[read.event["process"], read.event["session"]]:
            if each.ended < read.began and each.event["value"] not in seen:
                yield Anomaly("own write unseen", f"{read.event['session']}: {each.event['value']}")


def _streams(history: History) -> Iterator[Anomaly]:
    """A stream shows each event that it was to show once, in order, across its reconnections."""
    for each in history.of("stream", "ok"):
        ids, where = each.event["ids"], each.event["session"]
        if ids != sorted(set(ids)):
            yield Anomaly("stream out of order", f"{where}: events came twice or in another order")
        wanted = each.event.get("expected")
        if wanted is not None and (gone := set(wanted) - set(ids)):
            yield Anomaly(
                "stream incomplete", f"{where}: {len(gone)} events are missing, the first is {min(gone)}"
            )


def _turns(history: History) -> Iterator[Anomaly]:
    """One turn of a session at a time, and each ends."""
    for each in history.of("turns", "ok"):
        spans, where = each.event["spans"], each.event["session"]
        if stuck := sum(ended is None for _, ended in spans):
            yield Anomaly("stuck", f"{where}: {stuck} turns have not ended")
        ended = sorted(span for span in spans if span[1] is not None)
        for (_, end), (begin, _) in pairwise(ended):
            if begin < end:
                yield Anomaly("two at a time", f"{where}: a turn began at {begin}, before {end}")


def _effects(history: History) -> Iterator[Anomaly]:
    """Each slot that succeeded had its effect once."""
    keys = _keys_of(history, "effect", "slot")
    runs = [run for each in history.of("runs", "ok") for run in each.event["runs"]]
    for run in runs:
        done = keys.get(run["slot"], [])
        if run["state"] == "succeeded" and not done:
            yield Anomaly("effect lost", f"{run['slot']} succeeded without its effect")
        if len(set(done)) > 1:
            yield Anomaly("effect doubled", f"{run['slot']} had its effect under {len(set(done))} keys")


def _slots(history: History) -> Iterator[Anomaly]:
    """Each slot has one run, and no effect is of a slot without one."""
    runs = Counter(run["slot"] for each in history.of("runs", "ok") for run in each.event["runs"])
    for slot, number in runs.items():
        if number > 1:
            yield Anomaly("slot twice", f"{slot} has {number} runs")
    for slot in _keys_of(history, "effect", "slot").keys() - runs.keys() if runs else ():
        yield Anomaly("effect of nothing", f"no run is of slot {slot}")


def _keys_of(history: History, op: str, what: str) -> dict[str, list[str]]:
    """The keys of all calls outside, by what they were for."""
    keys: dict[str, list[str]] = defaultdict(list)
    for each in history.of(op, "ok"):
        keys[each.event[what]].append(each.event["key"])
    return keys


def _deliveries(history: History) -> Iterator[Anomaly]:
    """What is delivered again has the same key, so that a receiver knows it again."""
    for what, keys in _keys_of(history, "deliver", "of").items():
        if len(set(keys)) > 1:
            yield Anomaly("delivered under two keys", f"{what}: {', '.join(sorted(set(keys)))}")


def _alive(history: History) -> Iterator[Anomaly]:
    """Enough went well that the rest says something."""
    ended = Counter(each.end for op in ("append", "read", "stream") for each in history.by_op[op])
    total = sum(ended.values())
    if not total or ended["ok"] / total < LEAST_OK:
        yield Anomaly("dead", f"{ended['ok']} of {total} operations went well; {LEAST_OK:.0%} are needed")


def main(names: list[str]) -> int:
    """0 when every promise was kept; one line for each that was not."""
    lines = [line for name in names for line in Path(name).read_text().splitlines()]
    found = check(sorted(map(json.loads, lines), key=lambda event: event["at"]))
    for each in found:
        print(f"{each.name}: {each.detail}")
    print(f"{len(lines)} events; {len(found) or 'no'} anomalies")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
