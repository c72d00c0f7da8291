"""What stops an automation: what preflight found, how its last run failed, a cap. One cause holds: the newest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Any

from agent_core.connections import REJECTED, concerns
from agent_core.exceptions import FINAL_CODES, PASSING_CODES, UNUSABLE_CODES, ModelUnavailable
from agent_core.spending import Budget
from automations.jobs.stops import Stop, is_lifted, known_problems
from automations.models import RunState
from automations.models.run import OPEN_RUNS
from automations.runs.describe import QueueWait, describe_run, when
from automations.runs.skips import GapReason
from automations.runs.told import ONE_CAUSE
from automations.selectors import IN_ANOTHER_WAY, MODEL_CODES
from sessions_app.connections.usable import CURES, LAST_CALL, ModelWarnings, models_of

_REPORTED = ONE_CAUSE | {ModelUnavailable.code}  # what is stored of a connection as its last call
WORKS_AGAIN = "its connection works again, or was changed"


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """A row of `selectors.with_runs`, and what was read about it at `now`.

    `runs`: the last ones as rows with RUN_COLUMNS, newest first. `open_run`: the running one, else the first queued.
    `held_by`: why a due slot is not started, as the end of a sentence; empty: nothing holds it. `stop`: the cap that
    stops its next slot. `budgets`: those with caps to which its calls are charged.
    """

    job: Any
    now: datetime
    runs: Sequence[Any] = ()
    open_run: Any = None
    waiting: QueueWait = field(default_factory=QueueWait)
    held_by: str = ""
    of_models: ModelWarnings = field(default_factory=lambda: ModelWarnings([], []))
    stop: Stop | None = None
    budgets: Sequence[Budget] = ()

    @property
    def ended(self) -> list[Any]:
        """The runs that have ended, without slots that were moved, which may be still to come."""
        return [run for run in self.runs if run.state not in OPEN_RUNS and not run.moved_to]


def problems(facts: JobFacts) -> list[dict[str, str]]:
    """What preflight found that will stop the next run. Of a cap that stops it `stop` says more."""
    return known_problems(facts.job, facts.stop)


def is_mended(job: Any, run: Any, known: ModelWarnings) -> bool:
    """Whether the connection at which this run failed works again, or was changed since."""
    began = run.started_at or run.scheduled_for
    return bool(_is_of_connection(job, run) and known.well_since and known.well_since > began)


def failed_otherwise(job: Any, run: Any, known: ModelWarnings) -> bool:
    """Whether the last call of the connection at which this run failed has failed in another way."""
    return bool(_is_of_connection(job, run) and known.failed and known.failed.rstrip(".") not in run.error)


def _is_of_connection(job: Any, run: Any) -> bool:
    """Whether it failed at the connection of the job's only model."""
    return run.reason in _REPORTED and not models_of(job.agent, job.model, job.fallback_model)[1]


def mended_run(facts: JobFacts) -> Any:
    """The last run, if it failed at a connection that works now."""
    run = last_run(facts)
    is_failed = run is not None and run.state == RunState.FAILED
    return run if is_failed and is_mended(facts.job, run, facts.of_models) else None


def failed_before(run: Any, zone: tzinfo) -> str:
    """What to say of such a run."""
    return f"Failed at {when(run.scheduled_for, zone)}: {WORKS_AGAIN} since then."


def _newest_run(facts: JobFacts) -> Any:
    """The run that waits for a retry, else the last one, if a model failed in it; None: no model did."""
    run = facts.open_run if facts.open_run and facts.open_run.not_before else last_run(facts)
    is_failed = run is not None and run.state in (RunState.QUEUED, RunState.FAILED)
    return run if is_failed and run.reason in FINAL_CODES | PASSING_CODES else None


def _failed_at_model(facts: JobFacts) -> Any:
    """The newest run, if a model failed in it, and nothing newer is known of the connection."""
    run, known = _newest_run(facts), facts.of_models
    if run is None or is_mended(facts.job, run, known) or failed_otherwise(facts.job, run, known):
        return None
    return run


def _replaced(facts: JobFacts) -> list[dict[str, str]]:
    """The problems of a model that has failed in another way since; beside a fallback model both hold."""
    job, failed = facts.job, _failed_at_model(facts)
    if failed is None or models_of(job.agent, job.model, job.fallback_model)[1]:
        return []
    at, cure = failed.finished_at or facts.now, CURES.get(failed.reason)
    return [
        each
        for each in problems(facts)
        if each["code"] in MODEL_CODES
        and not (cure and cure in each["text"])
        and datetime.fromisoformat(each["since"]) <= at
    ]


def holding(facts: JobFacts) -> list[dict[str, str]]:
    """The problems without those that are replaced."""
    replaced = _replaced(facts)
    return [
        each
        for each in problems(facts)
        if each not in replaced and not is_past(facts.job, each, facts.of_models)
    ]


def is_past(job: Any, problem: dict[str, str], known: ModelWarnings) -> bool:
    """Whether a refusal of the connection that preflight found is no more, or hidden by an outage."""
    if models_of(job.agent, job.model, job.fallback_model)[1] or problem["code"] not in MODEL_CODES:
        return False
    if not any(CURES[each] in problem["text"] for each in ONE_CAUSE):
        return False
    well_since = known.well_since
    is_away = bool(known.failed) and REJECTED not in known.failed
    return is_away or bool(well_since and well_since > datetime.fromisoformat(problem["since"]))


def before(facts: JobFacts, zone: tzinfo) -> Iterator[str]:
    """The causes that are replaced, the newest first: of the same one the last run says more than preflight."""
    yield from _older_failures(facts, zone)
    failed, last = _failed_at_model(facts), last_run(facts)
    cure = None
    if failed and last and failed != last and last.state == RunState.FAILED and last.reason != failed.reason:
        cure = cure_of(facts.job, last)
        yield f"{describe_run(last, zone)} {cure}".rstrip()
    newest = _newest_run(facts)
    if newest and newest.state == RunState.FAILED and failed is None:
        cure = CURES.get(newest.reason)
        yield _older_failure(facts, newest, zone)
    past = [each for each in problems(facts) if is_past(facts.job, each, facts.of_models)]
    for each in (*_replaced(facts), *(past if facts.of_models.failed else ())):
        if not (cure and cure in each["text"]):
            yield each["text"].removeprefix(IN_ANOTHER_WAY)


def _older_failures(facts: JobFacts, zone: tzinfo) -> Iterator[str]:
    """How it failed before a cap stopped it, or by a cap that stands no more."""
    waits = facts.open_run if facts.stop and facts.open_run and facts.open_run.not_before else None
    if waits:  # no slot comes before its next attempt
        yield _older_failure(facts, waits, zone)
    last = last_not_skipped(facts)
    if last is None or last.state != RunState.FAILED:
        return
    if is_lifted(last, facts.budgets) or (facts.stop and last.reason != GapReason.BUDGET):
        yield _older_failure(facts, last, zone)


def _older_failure(facts: JobFacts, run: Any, zone: tzinfo) -> str:
    """How this run failed, with the cure unless something newer is known of its connection."""
    job, known = facts.job, facts.of_models
    is_newer_known = is_mended(job, run, known) or failed_otherwise(job, run, known)
    cure = "" if is_newer_known else cure_of(job, run)
    return f"{describe_run(run, zone, waiting=QueueWait())} {cure}".rstrip()


def last_not_skipped(facts: JobFacts) -> Any:
    """The last run that has ended and was not skipped; None: there is none."""
    return next((run for run in facts.ended if run.state != RunState.SKIPPED), None)


def codes(facts: JobFacts) -> Iterator[str]:
    """The stored codes of what stops it, the newest first, as `code_of_run` returns them. A cap comes first."""
    job, last = facts.job, last_run(facts)
    if facts.stop:
        yield f"{GapReason.BUDGET}:{facts.stop.scope}"
    if failed := _failed_at_model(facts):
        yield code_of_run(job, failed)
    elif said := facts.of_models.uncallable:
        yield from (with_owner(job, code) for code, cure in CURES.items() if cure in said[0])
    yield from (with_owner(job, each["code"]) for each in holding(facts))
    is_done = last and last.state in (RunState.SUCCEEDED, RunState.FAILED)
    if is_done and last not in (failed, _newest_run(facts)) and not is_lifted(last, facts.budgets):
        yield code_of_run(job, last)


def code_of_run(job: Any, run: Any) -> str:
    """The code of what failed or is missing in this run, with whose cap or model it is: `budget:automation`."""
    if run.reason == GapReason.BUDGET and run.cap:
        return f"{run.reason}:{run.cap['scope']}"
    return with_owner(job, run.reason or run.attention)


def with_owner(job: Any, code: str) -> str:
    """The code of a problem; of a model with whose it is, if the job has one of its own."""
    own = job and (job.fallback_model if code == MODEL_CODES[1] else job.model)
    return f"{code}:automation" if own and code else code


def last_run(facts: JobFacts) -> Any:
    """The last run that has ended; None: there is none."""
    return next(iter(facts.ended), None)


def warnings_of_models(facts: JobFacts) -> list[str]:
    """Why its models cannot be called, unless the newest run says so."""
    found, failed = facts.of_models.uncallable, _failed_at_model(facts)
    if failed is None or failed.reason in CURES:
        return found or _model_failed(facts)
    return [each for each in found if not each.startswith(LAST_CALL)]


def _model_failed(facts: JobFacts) -> list[str]:
    """A warning about a model that could not be called in the last run, unless its connection works or was changed
    since, another model was chosen, or preflight says it. Nothing else is known of models without a connection.
    """
    job = facts.job
    done = (run for run in facts.runs if run.state in (RunState.SUCCEEDED, RunState.FAILED))
    last = next(done, None)
    if last is None or last.state != RunState.FAILED or last.reason not in UNUSABLE_CODES:
        return []
    well_since = facts.of_models.well_since
    if well_since and well_since > (last.started_at or last.scheduled_for):
        return []
    cure = cure_of(job, last)
    if not cure or any(cure in each["text"] for each in problems(facts)):
        return []
    return [f"The model could not be called in the last run. {cure}"]


def cure_of(job: Any, run: Any) -> str:
    """What a person can do about the model that failed in this run; empty: nothing is known, or it is another now."""
    models = models_of(job.agent, job.model, job.fallback_model)
    is_of_these = any(concerns(run.error, each.partition(":")[2] or each) for each in models if each)
    return CURES.get(run.reason, "") if is_of_these else ""
