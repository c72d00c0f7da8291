"""A refusal that concerns a connection or a model stops all who use it: the owner is told once for all of them."""

from __future__ import annotations

from typing import Any

from agent_core.connections import prefix_of
from automations.models import CronJob, ToldCause
from automations.models.job import is_of_people
from sessions_app.connections.usable import CURES, models_of

ONE_CAUSE = frozenset({"model_auth", "model_quota"})  # the others concern a single model
_MOST_READ, _MOST_NAMED = 100, 5  # appointments


def cause_of(model: str, code: str, text: str = "") -> str:
    """What this refusal of a model has in common with others; empty: it is no refusal. `text`: of preflight, which says
    the cure.
    """
    why = code if code in CURES else next((each for each, cure in CURES.items() if text and cure in text), "")
    if not why or not model:
        return ""
    return f"{(why in ONE_CAUSE and prefix_of(model)) or model} {why}"


def cause_of_run(job: Any, code: str) -> str:
    """The same of a run of this job that failed."""
    return cause_of(models_of(job.agent, job.model, job.fallback_model)[0], code)


def causes_of(job: Any) -> list[str]:
    """All that may stop the models of a job."""
    models = filter(None, models_of(job.agent, job.model, job.fallback_model))
    return [cause_of(model, code) for model in models for code in CURES]


def tell_once(job: CronJob, cause: str) -> str | None:
    """Which appointments the cause concerns, in a sentence; None: the owner was told of it."""
    if not ToldCause.objects.tell(job.agent.owner_id, cause):
        return None
    rows = CronJob.objects.filter(agent__owner_id=job.agent.owner_id, enabled=True)
    others = rows.exclude(pk=job.pk).select_related("agent", "session").order_by("name", "pk")[:_MOST_READ]
    found = [job, *(each for each in others if is_of_people(each) and cause in causes_of(each))]
    if len(found) == 1:
        return ""
    names = ", ".join(f'"{each.name}" of {each.agent.name}' for each in found[:_MOST_NAMED])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f" It concerns {names}{more}."
