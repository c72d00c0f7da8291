"""Run a server for a while under load, faults and abusive clients, then check every invariant: `make chaos`.

Exit 1 when something accepted was lost or doubled, or when a turn or a slot has no end once the faults have
ceased.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import quantiles

from chaos.abuse import ACTS, NO_ANSWER
from chaos.faults import FAULTS, Fault
from chaos.load import Load, counts, verdict
from chaos.server import System, running

BETWEEN_FAULTS = (8.0, 25.0)  # seconds
BETWEEN_ACTS = (5.0, 20.0)  # seconds


def main() -> int:
    """0 when everything holds."""
    given = _arguments()
    with tempfile.TemporaryDirectory(prefix="rondo-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running(folder) as system:
            good = _run(system, given)
        if given.keep_logs:
            given.keep_logs.mkdir(parents=True, exist_ok=True)
            for log in [*folder.glob("*.log"), *folder.glob("data/logs/*.log")]:
                (given.keep_logs / log.name).write_bytes(log.read_bytes())
    return 0 if good else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the faults go on (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="which faults in which order (default: 0)")
    parser.add_argument(
        "--faults", default="", metavar="WORD", help="only faults with this word in their name"
    )
    parser.add_argument("--no-abuse", action="store_true", help="faults only")
    parser.add_argument("--keep-logs", type=Path, metavar="FOLDER", help="copy the logs there at the end")
    return parser.parse_args()


def _run(system: System, given: argparse.Namespace) -> bool:
    stopped, began, chance = threading.Event(), time.monotonic(), random.Random(given.seed)
    chosen = {name: fault for name, fault in FAULTS.items() if given.faults in name}

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    load = Load(system=system)
    load.start()
    abuse = threading.Thread(target=_abuse, args=(system, stopped, say, chance), daemon=True)
    if not given.no_abuse:
        abuse.start()
    faults = _faults(system, given.minutes * 60, chance, chosen, say)
    stopped.set()
    say("the faults have ceased")
    if not given.no_abuse:
        abuse.join(300)
    load.stop()
    found = verdict(system, load)
    say(f"faults: {dict(faults)}")
    say(f"messages accepted: {load.posted}; {counts(system)}")
    if len(load.waits) > 1:
        cuts = quantiles(load.waits, n=100)
        say(f"until a message was accepted: median {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s")
    for what, rows in found.items():
        say(f"BROKEN  {what}: {rows}")
    say("every invariant holds" if not found else f"{len(found)} invariants are broken")
    return not found


def _abuse(
    system: System, stopped: threading.Event, say: Callable[[str], None], chance: random.Random
) -> None:
    while not stopped.wait(chance.uniform(*BETWEEN_ACTS)):
        act = chance.choice(ACTS)
        try:
            say(f"abuse: {act.__name__}: {act(system)}")
        except (*NO_ANSWER, ValueError, LookupError) as error:
            say(f"abuse: {act.__name__}: broken off by {type(error).__name__}")


def _faults(
    system: System,
    seconds: float,
    chance: random.Random,
    chosen: dict[str, Fault],
    say: Callable[[str], None],
) -> Counter[str]:
    done: Counter[str] = Counter()
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, chance.uniform(*BETWEEN_FAULTS)))
        name, fault = chance.choice(list(chosen.items()))
        done[name] += 1
        say(f"fault: {name}: {fault(system, chance)}")
    return done


if __name__ == "__main__":
    sys.exit(main())
