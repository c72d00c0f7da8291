"""How what processes tell of themselves may be broken. As in table.py."""

from __future__ import annotations

from tests.broken_rules.table import Break

PROCESSES = "tests/config/operations/test_processes.py::"
SLOTS = "tests/sessions_app/worker/test_free_slots.py::"
PRECEDENCE = "tests/sessions_app/turns/test_precedence.py::"

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
    Break(
        rule="1.7",
        how="an automation's turn does not give way to a person's that begins",
        file="sessions_app/worker/process.py",
        old="is_new=lane == Lane.PEOPLE",
        new="is_new=True",
        tests=(PRECEDENCE + "test_people_are_new_and_automations_give_way",),
    ),
    Break(
        rule="1.7",
        how="a turn whose hint was received does not count until it begins",
        file="sessions_app/tasks.py",
        old="list(request.args or ())[1:] == [Lane.PEOPLE]",
        new="False",
        tests=(PRECEDENCE + "test_a_turn_whose_hint_was_received_counts_until_it_has_ended",),
    ),
    Break(
        rule="1.7",
        how="a turn that is expected counts for ever",
        file="sessions_app/turns/precedence.py",
        old="                self._until.pop(None, None)\n",
        new="                pass\n",
        tests=(PRECEDENCE + "test_a_turn_whose_hint_was_received_counts_until_it_has_ended",),
    ),
    Break(
        rule="1.7",
        how="turns that begin one after the other hold up all other work",
        file="sessions_app/turns/precedence.py",
        old="min(max(self._until.values(), default=0.0), give_up)",
        new="max(self._until.values(), default=0.0)",
        tests=(PRECEDENCE + "test_many_turns_that_begin_hold_nobody_up_for_long",),
    ),
    Break(
        rule="1.7",
        how="a queue that goes on never rests",
        file="sessions_app/turns/precedence.py",
        old="if self._turns > 1 and",
        new="if False and",
        tests=(
            PRECEDENCE + "test_a_queue_rests_from_its_third_turn_unless_another_session_waits_for_its_user",
        ),
    ),
    Break(
        rule="1.7",
        how="a queue rests although others wait for its slot",
        file="sessions_app/turns/precedence.py",
        old=" and not self._is_full():",
        new=":",
        tests=(PRECEDENCE + "test_a_worker_whose_slots_are_taken_has_no_rest",),
    ),
    Break(
        rule="1.7",
        how="a queue rests although another session waits for a turn of its user to end",
        file="sessions_app/turns/run.py",
        old="end_turn(elsewhere=waiting.elsewhere)",
        new="end_turn()",
        tests=(
            PRECEDENCE + "test_a_queue_rests_from_its_third_turn_unless_another_session_waits_for_its_user",
        ),
    ),
    Break(
        rule="1.7",
        how="a queue rests for as long as its model took to answer",
        file="sessions_app/turns/precedence.py",
        old="min(time.monotonic() - self._step_began, LONGEST_REST)",
        new="time.monotonic() - self._step_began",
        tests=(PRECEDENCE + "test_a_queue_that_goes_on_rests_as_long_as_its_last_step_took",),
    ),
    Break(
        rule="1.7",
        how="a turn that could not be claimed holds up other work",
        file="sessions_app/turns/run.py",
        old="    finally:\n        place.end_turn()\n",
        new="    finally:\n        pass\n",
        tests=(PRECEDENCE + "test_no_turn_counts_after_it_has_ended",),
    ),
    Break(
        rule="1.7",
        how="a full worker stores the hints that it takes in the broker",
        file="config/celery.py",
        old='            "ack_emulation": False,\n',
        new="",
        tests=(SLOTS + "test_a_full_worker_leaves_hints_in_the_broker_and_stores_none_that_it_took",),
    ),
    Break(
        rule="1.7",
        how="a queue that goes on gives way to nobody",
        file="sessions_app/turns/lock.py",
        old=", place=handle.place)",
        new=")",
        tests=(PRECEDENCE + "test_each_step_of_a_turn_has_its_place",),
    ),
    Break(
        rule="1.7",
        how="turns take no place",
        file="sessions_app/turns/run.py",
        old="        handle.place = place\n",
        new="",
        tests=(PRECEDENCE + "test_each_step_of_a_turn_has_its_place",),
    ),
    Break(
        rule="1.7",
        how="all slots of a busy worker wait for turns that begin",
        file="sessions_app/worker/process.py",
        old="        return len(self.locks.held()) > FEW\n",
        new="        return False\n",
        tests=(PRECEDENCE + "test_a_worker_is_busy_when_more_than_a_few_sessions_are_at_work",),
    ),
)
