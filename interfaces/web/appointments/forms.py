"""The forms of appointments. Why the API refused a form is said in the words of its fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.core.exceptions import NON_FIELD_ERRORS

from agent_core.addresses import LONGEST_URL
from agent_core.connections import MOST_TOKENS
from automations.gates.http_changed import KIND, LONGEST_POINTER
from automations.jobs.validate import (
    LONGEST_JITTER,
    LONGEST_MESSAGE,
    LONGEST_NAME,
    LONGEST_PING_URL,
    MOST_RETRIES,
)
from automations.models import CatchUp, CronJob, ExecutionMode, Overlap, ScheduleKind
from automations.scheduled_messages import LONGEST_TEXT
from interfaces.web.appointments.moments import ClockForm, MomentField, local_time
from interfaces.web.appointments.schedule_form import (
    PLAIN,
    Repeat,
    ScheduleForm,
    line_field,
    number_field,
    schedule_fields,
)
from sessions_app.agents.edit import LONGEST_MODEL
from sessions_app.spending.caps import MOST_TOKENS as MOST_CAPPED
from sessions_app.spending.caps import PERIODS, WORDS

ALWAYS_SHOWN = ("message", "title", "description")  # beside the schedule; all others are under "More"
SAME = (  # fields of an automation that are stored as they are in the form
    *("name", "message", "max_runs", "overlap", "catch_up", "max_retry", "timeout_seconds", "jitter_seconds"),
    *("ping_url", "model", "fallback_model", "max_output_tokens"),
)
WHEN_EMPTY = {"overlap": Overlap.SKIP, "catch_up": CatchUp.ONE, "max_retry": 0, "jitter_seconds": 0}
USUALLY_EMPTY = {  # fields under "More"; a name is not among them, as each automation has one
    *("instructions", "ends_at", "max_runs", "timeout_seconds", "ping_url"),
    *("model", "fallback_model", "max_output_tokens", "allow_tools", "gate", "gate_pointer"),
    *(f"{amount}_{period}" for amount in ("usd", "tokens") for period in PERIODS),
}


def _text(label: str, most: int, hint: str = "", *, required: bool = True) -> forms.CharField:
    widget = forms.Textarea({"rows": 3} | ({"placeholder": hint} if hint else {}))
    return forms.CharField(max_length=most, label=label, widget=widget, required=required)


def _time_limit() -> forms.IntegerField:
    return number_field("Time limit in seconds", 1, settings.RONDO_TURN_SECONDS, "as for all turns")


class CappedForm(ScheduleForm):
    """The fields that automations and routines share: caps, and a gate that watches an address.

    `usual`: the values of other fields that show as if nothing was set.
    """

    usual: ClassVar[Mapping[str, Any]] = {}

    usd_run, usd_day, usd_month = (
        line_field(f"US dollars {WORDS[period]}", 20, {"placeholder": "no cap", "inputmode": "decimal"})
        for period in PERIODS
    )
    tokens_run, tokens_day, tokens_month = (
        number_field(f"Tokens {WORDS[period]}", 0, MOST_CAPPED, "no cap") for period in PERIODS
    )
    gate = line_field(
        "Run only if this address has changed",
        LONGEST_URL,
        {"placeholder": "https://example.org/news"},
        forms.URLInput,
    )
    gate_pointer = line_field(
        "Only this JSON value counts", LONGEST_POINTER, {"placeholder": "/items/0", **PLAIN}
    )

    @property
    def is_more_wrong(self) -> bool:
        """Whether a field under "More" is wrong."""
        return not self.errors.keys() <= {NON_FIELD_ERRORS, *ScheduleForm.base_fields, *ALWAYS_SHOWN}

    @property
    def is_more_open(self) -> bool:
        """Whether a field under "More" is wrong, or a setting there is not the usual one."""
        shown = {name: self[name].value() for name in self.fields}
        is_set = any(shown.get(name) not in (None, "") for name in USUALLY_EMPTY)
        return (
            self.is_more_wrong
            or is_set
            or any(str(shown[name]) != str(self.usual[name]) for name in self.usual)
        )

    def shared_values(self) -> dict[str, Any]:
        """The caps and the gate."""
        given = self.cleaned_data
        watch = {"kind": KIND, "url": given["gate"], "pointer": given["gate_pointer"]}
        limits = {
            period: {"usd": given[f"usd_{period}"].strip() or None, "tokens": given[f"tokens_{period}"]}
            for period in PERIODS
        }
        return {"limits": limits, "gate": watch if given["gate"] else None}

    def changed_names(self) -> set[str]:
        """What differs from the stored values, by the names of the API."""
        changed = {*self.changed_data, *(["schedule"] if self.is_replanned() else [])}
        changed |= {"gate"} if "gate_pointer" in changed else set()
        return changed | (
            {"limits"} if any(name.startswith(("usd_", "tokens_")) for name in changed) else set()
        )

    @staticmethod
    def stored_shared(job: CronJob) -> dict[str, Any]:
        """The values of these fields. A gate of another kind is shown empty, and stays as it is."""
        watched = job.gate if job.gate and job.gate["kind"] == KIND else {}
        caps = {
            f"{name}_{period}": job.limits.get(period, {}).get(name, "")
            for period in PERIODS
            for name in ("usd", "tokens")
        }
        return caps | {"gate": watched.get("url", ""), "gate_pointer": watched.get("pointer", "")}


class AutomationForm(CappedForm):
    """The form of an automation: what it does and when. The functions that store it check the values once more."""

    usual = WHEN_EMPTY

    message = _text("What should the agent do?", LONGEST_MESSAGE, "Summarise the news of the night")
    name = line_field("Name", LONGEST_NAME, {"placeholder": "The first words of the text"})
    ends_at = MomentField(required=False, label="No runs after")
    max_runs = number_field("Stop after this many runs", 1, 1_000_000, "never")
    overlap = forms.ChoiceField(
        required=False,
        initial=Overlap.SKIP,
        choices=((Overlap.SKIP, "Skip it"), (Overlap.QUEUE, "Let it wait")),
        label="If the previous run has not ended",
    )
    catch_up = forms.ChoiceField(
        required=False,
        initial=CatchUp.ONE,
        choices=(
            (CatchUp.ONE, "Run the latest missed one"),
            (CatchUp.NONE, "Run none of them"),
            (CatchUp.ALL, "Run all of them"),
        ),
        label="If the server was down",
    )
    max_retry = number_field("Retries after a failure", 0, MOST_RETRIES, initial=0)
    timeout_seconds = _time_limit()
    jitter_seconds = number_field(
        "Delay each run by a fixed time, up to so many seconds", 0, LONGEST_JITTER, initial=0
    )
    ping_url = line_field(
        "Call this address after each run",
        LONGEST_PING_URL,
        {"placeholder": "https://hc-ping.com/…"},
        forms.URLInput,
    )
    model = line_field("Model", LONGEST_MODEL, {"placeholder": "as the agent has it", **PLAIN})
    fallback_model = line_field(
        "Fallback model", LONGEST_MODEL, {"placeholder": "as the agent has it", **PLAIN}
    )
    max_output_tokens = number_field("Longest reply in tokens", 1, MOST_TOKENS, "as the agent has it")
    allow_tools = line_field(
        "Only these tools", LONGEST_MESSAGE, {"placeholder": "all that the agent has", **PLAIN}
    )

    def values(self) -> dict[str, Any]:
        """The values of the form as `bind_job` and `update_job` take them."""
        given = self.cleaned_data
        found = {name: given[name] or WHEN_EMPTY.get(name, given[name]) for name in SAME}
        once = {"at": self.instant("at")} if given["repeat"] == Repeat.ONCE else {}
        return found | {
            "message": _plain(given["message"]),
            "schedule": given["schedule"] | once,
            "ends_at": self.instant("ends_at"),
            "allow_tools": [name.strip() for name in given["allow_tools"].split(",") if name.strip()] or None,
            **self.shared_values(),
        }


_OWN = ("model", "fallback_model", "max_output_tokens", "allow_tools", "gate", "gate_pointer")


def own_settings(job: CronJob) -> list[tuple[str, str]]:
    """What a job has instead of its agent's model and tools, and its gate: the labels of the fields, and the values."""
    stored = ChangeForm.stored(job, job.agent.timezone)
    found = [
        (str(AutomationForm.base_fields[name].label), str(stored[name])) for name in _OWN if stored[name]
    ]
    if job.gate and job.gate["kind"] != KIND:
        found.append(("Run only if this check finds something", job.gate["kind"]))
    return found


class PauseForm(ClockForm):
    """From when, at once if it is empty, and until when an automation pauses."""

    paused_from = MomentField(required=False, label="Pause from")
    paused_until = MomentField(label="Pause until")

    def changes(self) -> dict[str, Any]:
        """The pause, as `update_job` takes it."""
        return {name: self.instant(name) for name in self.fields}


class PauseAllForm(PauseForm):
    """The same of all automations and routines, which may pause until each is resumed."""

    paused_until = MomentField(required=False, label="Pause until")


class MoveForm(ClockForm):
    """To when a run is moved."""

    to = MomentField(label="Run it at")


class ChangeForm(AutomationForm):
    """An automation that exists."""

    @staticmethod
    def stored(job: CronJob, clock: str) -> dict[str, Any]:
        """The values of the fields for an automation."""
        found = {name: getattr(job, name) for name in SAME}
        found["ends_at"] = job.ends_at and local_time(job.ends_at, clock)
        found["allow_tools"] = ", ".join(job.allow_tools or ())
        return found | schedule_fields(job, clock) | CappedForm.stored_shared(job)

    def changes(self) -> dict[str, Any]:
        """The values that differ from the stored ones, so that nothing else is replaced."""
        changed = self.changed_names()
        return {name: value for name, value in self.values().items() if name in changed}


class RoutineForm(CappedForm):
    """The form of a routine: what it does and when. `update_routine` checks the values once more.

    A routine repeats at an interval or by cron, and on all its days.
    """

    repeat = forms.ChoiceField(
        choices=[each for each in Repeat.choices if each[0] != Repeat.RULE], label="Repeat"
    )
    title = forms.CharField(max_length=LONGEST_NAME, label="Name")
    description = _text("What should the agent do?", LONGEST_MESSAGE, required=False)
    instructions = _text("Standing instructions", LONGEST_MESSAGE, required=False)
    execution_mode = forms.ChoiceField(
        choices=(
            (ExecutionMode.INLINE, "With the heartbeat"),
            (ExecutionMode.ISOLATED, "By itself, in a session of its own"),
        ),
        label="Where it runs",
    )
    max_retry = number_field("Retries after a failure", 0, MOST_RETRIES, required=True)
    timeout_seconds = _time_limit()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in ("weeks", "since", "rule", "starts_at", "except_on", "except_holidays"):
            del self.fields[name]

    @staticmethod
    def stored(job: CronJob, clock: str) -> dict[str, Any]:
        """The values of the fields for a routine."""
        same = ("description", "execution_mode", "max_retry", "timeout_seconds")
        found = {name: getattr(job, name) for name in same}
        found |= {"title": job.name, "instructions": job.message}
        return found | schedule_fields(job, clock) | CappedForm.stored_shared(job)

    def clean(self) -> dict[str, Any]:
        """Refuse what only a rule can say."""
        given = super().clean()
        if given.get("schedule", {}).get("kind") == ScheduleKind.RRULE:
            self.add_error("repeat", "A routine cannot repeat like this; an automation can.")
        return given

    def changes(self) -> dict[str, Any]:
        """The values that differ from the stored ones, as `update_routine` takes them."""
        given = self.cleaned_data
        changed = self.changed_names()
        found = {name: _plain(given[name]) if name in TEXTS else given[name] for name in changed & SETTINGS}
        found |= {name: value for name, value in self.shared_values().items() if name in changed}
        return found | (self._plan() if self.is_replanned() else {})

    def _plan(self) -> dict[str, Any]:
        given = self.cleaned_data
        if given["repeat"] == Repeat.ONCE:
            return {"schedule": None, "next_run_at": self.instant("at"), "timezone": ""}
        if given["repeat"] == Repeat.EVERY:
            return {"schedule": f"{given['schedule']['seconds']}s"}
        return {"schedule": given["schedule"]["expr"], "timezone": given["timezone"]}


TEXTS = {"description", "instructions"}  # of a routine, of several lines
SETTINGS = TEXTS | {"title", "execution_mode", "max_retry", "timeout_seconds"}


def _plain(text: str) -> str:
    """The text of a form, with the line ends of a database."""
    return text.replace("\r\n", "\n").strip()


class LaterForm(ClockForm):
    """A fixed text at a set time."""

    message_text = _text("Text", LONGEST_TEXT)
    send_at = MomentField(label="When")


LABELS = {
    "base_url": "Address",
    "secret": "API key",
    "models": "Allowed models",
    "limits.requests_per_minute": "Calls per minute",
    "prices": "US dollars for a million tokens",
    "fallback_model": "Fallback model",
    "max_tokens": "Longest reply in tokens",
    "timezone": "Time zone",
    "unified_session": "Unified session",
    "allow_tools": "Tools",
    "events_url": "Address for system events",
    "url": "Address",
    "gate.url": str(AutomationForm.base_fields["gate"].label),
    "gate.pointer": str(AutomationForm.base_fields["gate_pointer"].label),
    **{f"limits.{period}.usd": f"US dollars {WORDS[period]}" for period in PERIODS},
    **{f"limits.{period}.tokens": f"Tokens {WORDS[period]}" for period in PERIODS},
}
_CODE = re.compile("`([^`]*)`")
_NAME = re.compile(r"([a-z_]+(?:\.[a-z_]+)*)(:?) ")
_PROVIDERS = re.compile(
    r"; providers: [\w ,.:-]+$"
)  # a long list, which the form of connections has to choose from


def in_words(text: str) -> str:
    """The text with the label of the field that it begins with, as a sentence begins."""
    text = _PROVIDERS.sub("; providers are listed under Connections", text)
    text = _CODE.sub(r"“\1”", text)
    found = _NAME.match(text)
    if found and (label := LABELS.get(found[1])):
        return f"{label}{found[2]} {text[found.end() :]}"
    return text[:1].upper() + text[1:]


def beside_field(text: str, name: str) -> str:
    """The text as it stands at the field of this name of the API."""
    found = _NAME.match(text)
    if not found or found[1].partition(".")[0] != name:
        return in_words(text)
    return in_words(text[found.end() :] if found[2] else f"it {text[found.end() :]}")
