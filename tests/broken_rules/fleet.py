"""How what processes tell of themselves may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

PROCESSES = "tests/config/operations/test_processes.py::"

FLEET = (
    Break(
        rule="10.2",
        how="a process tells its keys to all",
        file="config/operations/facts.py",
        old="    shown = {name: value for name, value in values.items() if name in SHOWN}",
        new="    shown = dict(values)",
        tests=(PROCESSES + "test_what_a_process_tells_holds_no_secret",),
    ),
    Break(
        rule="10.2",
        how="the broker's password is shown",
        file="config/operations/facts.py",
        old='    host = parts.netloc.rpartition("@")[2]',
        new="    host = parts.netloc",
        tests=(PROCESSES + "test_what_a_process_tells_holds_no_secret",),
    ),
    Break(
        rule="10.2",
        how="one restarted process hides all that were killed on its machine",
        file="config/operations/fleet.py",
        old="            free.remove(newer[0])\n",
        new="            pass\n",
        tests=(PROCESSES + "test_one_process_replaces_one",),
    ),
    Break(
        rule="10.2",
        how="doctor judges by the settings of its terminal",
        file="config/operations/fleet.py",
        old="        return max((each.lost_after for each in self.alive), default=own)",
        new="        return own",
        tests=(PROCESSES + "test_another_terminal_is_told_of_the_processes_and_not_of_itself",),
    ),
    Break(
        rule="10.2",
        how="a process that has ended reports itself once more",
        file="sessions_app/operations/processes.py",
        old="            if self._ended.is_set():\n                return  # its row has been removed\n",
        new="",
        tests=(PROCESSES + "test_a_presence_that_ended_never_comes_back",),
    ),
)
