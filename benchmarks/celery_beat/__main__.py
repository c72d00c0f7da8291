"""`python -m benchmarks.celery_beat`: measures the DatabaseScheduler of django-celery-beat, one round for each request.

A line on stdin is a request, `{"schedules": 1000, "due": [1, 100], "idle_ticks": 20}`, with at least as many schedules
as the one before. A line on stdout is its answer, of costs (`benchmarks.cost.Cost`):

    {"idle": cost, "edited": cost, "due": {"1": cost, "100": cost}, "written": {"1": cost, "100": cost}}

idle: one tick with nothing due. edited: the tick after one schedule was saved. due: all ticks until that many due
schedules were sent. written: storing that they ran, which its beat does every three minutes outside of ticks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from celery import Celery

from benchmarks.cost import MILLISECONDS, Cost, measured

QUEUE = "celery-beat-benchmark"
INTERVAL_DAYS = 30
ROWS_AT_ONCE = 5_000
SLACK = 2.0  # a reload may take this many times as long as the first one


def main() -> None:
    """Answer until stdin ends. Another number of schedules gets a scheduler of its own, with a warm-up."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)
    beat, schedules = None, 0
    for line in sys.stdin:
        given = json.loads(line)
        if beat is None or schedules != given["schedules"]:
            schedules = given["schedules"]
            _make(schedules)
            beat = _Beat()
        print(json.dumps(beat.measure(given["due"], given["idle_ticks"])), flush=True)


def _make(count: int) -> None:
    """Add schedules until there are `count`. All share one interval, the kind that is cheapest to read and compare."""
    from django.db import connection
    from django_celery_beat.models import IntervalSchedule, PeriodicTask  # type: ignore[import-untyped]
    from django_celery_beat.utils import now  # type: ignore[import-untyped]

    interval, _ = IntervalSchedule.objects.get_or_create(every=INTERVAL_DAYS, period=IntervalSchedule.DAYS)
    PeriodicTask.objects.bulk_create(
        (
            PeriodicTask(
                name=f"schedule {number}",
                task="noop",
                interval=interval,
                args=json.dumps([f"{number:032x}"]),
                last_run_at=now(),
            )
            for number in range(PeriodicTask.objects.count(), count)
        ),
        ROWS_AT_ONCE,
    )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


class _Beat:
    """Its DatabaseScheduler, ticked without sleep."""

    def __init__(self) -> None:
        from django_celery_beat.schedulers import DatabaseScheduler  # type: ignore[import-untyped]

        self._app = Celery("celery_beat", broker=os.environ["CELERY_BROKER_URL"], set_as_current=True)
        # without results Celery adds no clean-up task to the schedules
        self._app.conf.update(task_default_queue=QUEUE, result_expires=None)
        self._scheduler = DatabaseScheduler(app=self._app)
        self._scheduler.tick()
        self._reload = timedelta(seconds=self.edited().wall / MILLISECONDS)
        self.fire(1)  # warm-up

    def measure(self, dues: list[int], idle_ticks: int) -> dict[str, Any]:
        """One round of each cost."""
        answer: dict[str, Any] = {"idle": asdict(self.idle(idle_ticks)), "edited": asdict(self.edited())}
        fired = {due: self.fire(due) for due in dues}
        answer["due"] = {due: asdict(sent) for due, (sent, _) in fired.items()}
        answer["written"] = {due: asdict(written) for due, (_, written) in fired.items()}
        return answer

    def idle(self, ticks: int) -> Cost:
        """The mean cost of a tick with nothing due."""
        with measured() as cost:
            waits = [self._scheduler.tick() for _ in range(ticks)]
        assert min(waits) > 0, "something was due"
        return cost.over(ticks)

    def edited(self) -> Cost:
        """The cost of the tick after one schedule was saved."""
        from django_celery_beat.models import PeriodicTask

        task = PeriodicTask.objects.order_by("?").first()
        task.args = json.dumps([f"edited {time.time()}"])
        task.save()
        with measured() as cost:
            self._scheduler.tick()
        assert json.dumps(self._scheduler.schedule[task.name].args) == task.args, "the edit was not seen"
        return cost

    def fire(self, due: int) -> tuple[Cost, Cost]:
        """The cost to send `due` schedules, and to store that they ran. Checks that exactly these were sent, once."""
        names = self._make_due(due)
        before = _run_counts()
        with measured() as sent:
            while self._scheduler.tick() == 0:
                pass
        with measured() as written:
            self._scheduler.sync()
        after = _run_counts()
        assert {
            name: after[name] - before[name] for name in after if after[name] != before[name]
        } == dict.fromkeys(names, 1), "the sent schedules are not those that were due"
        assert self._arrived() == due, "the broker has a different number of messages"
        return sent, written

    def _make_due(self, count: int) -> list[str]:
        """Make some due shortly, let the scheduler reload, and wait until they are due; returns their names."""
        from django_celery_beat.models import PeriodicTask, PeriodicTasks
        from django_celery_beat.utils import now

        names = list(PeriodicTask.objects.order_by("?").values_list("name", flat=True)[:count])
        due_at = now() + timedelta(seconds=0.5) + SLACK * self._reload
        PeriodicTask.objects.filter(name__in=names).update(last_run_at=due_at - timedelta(days=INTERVAL_DAYS))
        PeriodicTasks.update_changed()
        self._scheduler.tick()
        assert now() < due_at, "the reload took too long: the schedules are already due"
        time.sleep((due_at - now()).total_seconds())
        return names

    def _arrived(self) -> int:
        """Drop the messages at the broker; returns their number."""
        with self._app.connection_for_write() as connection:
            channel: Any = connection.default_channel
            count: int = channel.queue_declare(QUEUE, passive=True).message_count
            channel.queue_purge(QUEUE)
        return count


def _run_counts() -> dict[str, int]:
    from django_celery_beat.models import PeriodicTask

    return dict(PeriodicTask.objects.values_list("name", "total_run_count"))


if __name__ == "__main__":
    main()
