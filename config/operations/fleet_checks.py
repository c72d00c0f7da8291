"""Checks of the whole fleet: all processes report themselves, run one version, and have the same settings."""

from __future__ import annotations

from config.operations.fleet import MUST_AGREE, read_fleet
from sessions_app.operations.doctor import Finding, failed, passed, some_named


def processes() -> Finding:
    """No process has fallen silent without another in its place."""
    fleet = read_fleet()
    if silent := fleet.silent:
        named = (f"{each.name} for {each.silent_seconds:.0f} s" for each in silent)
        return failed(
            f"silent: {some_named(named, len(silent))}",
            "look at its machine and start it again; a process that is gone for good is forgotten after a day",
        )
    counts: dict[str, int] = {}
    for each in fleet.alive:
        counts[each.kind] = counts.get(each.kind, 0) + 1
    return passed(
        ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "none has reported itself"
    )


def versions() -> Finding:
    """All processes run one version; several are a warning, since they are usual during an upgrade."""
    fleet = read_fleet()
    if len(fleet.versions) < 2:
        return passed("".join(f"all run {version}" for version in fleet.versions) or "no process runs")
    return Finding(
        ok=True,
        seen=False,
        detail=fleet.versions_in_words(),
        cure="finish the upgrade: restart the processes of the older version",
    )


def fleet_settings() -> Finding:
    """All processes have the same settings. A difference is a fault if it breaks something, else a warning."""
    fleet = read_fleet()
    here = f"; this terminal has other values of {some_named(fleet.own, len(fleet.own))}" if fleet.own else ""
    if not fleet.differences:
        return passed(("the same in all processes" if fleet.alive else "no process runs") + here)
    names = (str(each) for each in fleet.differences)
    return Finding(
        ok=not any(each.name in MUST_AGREE for each in fleet.differences),
        seen=False,
        detail=some_named(names, len(fleet.differences)) + here,
        cure="give every process the same settings, and restart those that differ",
    )
