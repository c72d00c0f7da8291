"""What the dashboard is made of: tiles, panels, and links to the lists behind their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.safestring import SafeString

from automations.models import RunRecord
from automations.runs.describe import span
from interfaces.admin.panels import Panel, link_to, list_url

SHOWN = 10  # rows of a table
MOST_COUNTED = 10_000  # rows of a list that are counted


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A number at the top of the page. `tone`: `good`, `warn`, `bad` or nothing; `note` says it in words."""

    label: str
    value: str
    note: str
    url: str
    tone: str = ""


Part = Tile | Panel


def number(count: int, url: str) -> SafeString:
    """A count that leads to its list; `10,000 or more` where counting ends."""
    return link_to(url, f"{MOST_COUNTED:,} or more" if count == MOST_COUNTED else f"{count:,}")


def ago(since: datetime | None) -> str:
    """How long ago it was; a dash for None."""
    return "-" if since is None else span(timezone.now() - since)


def short_span(milliseconds: float) -> str:
    """`40 ms`, `2 min`."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    return span(timedelta(milliseconds=milliseconds))


def runs_url(*states: str, hour: datetime | None = None) -> str:
    """The list of runs: in one of these states if there are any, and of one hour (UTC) or of all time."""
    chosen: dict[str, str] = {}
    if states:
        chosen = {"state__in": ",".join(states)} if len(states) > 1 else {"state__exact": states[0]}
    if hour is not None:
        day = f"{hour:%Y-%m-%d}"
        chosen |= {
            "created_at_from_0": day,
            "created_at_from_1": f"{hour:%H}:00:00",
            "created_at_to_0": day,
            "created_at_to_1": f"{hour:%H}:59:59.999999",
        }
    return list_url(RunRecord, **chosen)
