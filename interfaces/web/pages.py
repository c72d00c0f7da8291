"""Shared parts of all pages: who may see them, their frame with the list of conversations and its search, fragments."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, cast
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from automations.schedules.zone_files import zone_or_utc
from interfaces.http.headers import is_fragment
from interfaces.web.rendering import plain
from sessions_app.deliveries.notifications import told_lately
from sessions_app.models import Message, ReadMark, Session, SessionState, SessionType
from sessions_app.reads import selectors
from sessions_app.reads.session_reads import shown_sessions
from sessions_app.single_line import one_line

View = Callable[..., HttpResponseBase]
LARGEST_NUMBER = 2**31 - 1  # that a column of the database holds, such as a revision


@dataclass(frozen=True, kw_only=True)
class FormResult:
    """The result of a form that was not simply stored.

    `typed`: the form's fields as the person filled them in, if it was refused. `is_conflict`: somebody else changed the
    values meanwhile. `found`: the result of a test.
    """

    typed: Mapping[str, Any] | None = None
    problem: str = ""
    is_conflict: bool = False
    found: Mapping[str, Any] = field(default_factory=dict)

    def shown(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the form's fields: as they were typed, else as they are stored."""
        typed = self.typed
        return dict(stored) if typed is None else {name: typed.get(name, "") for name in stored}


def person_page(*methods: str) -> Callable[[View], View]:
    """Decorator: only for signed-in people and these methods; nothing of it is cached."""

    def decorate(view: View) -> View:
        return wraps(view)(require_http_methods([*methods])(never_cache(signed_in(view))))

    return decorate


def signed_in(view: View) -> View:
    """Decorator: only for signed-in people."""
    asking = login_required(view)

    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if is_fragment(request) and not request.user.is_authenticated:
            return HttpResponse(status=401)  # the page reloads; a redirect would put the sign-in form into it
        return asking(request, *args, **kwargs)

    return answer


def person(request: HttpRequest) -> User:
    """The signed-in user."""
    return cast("User", request.user)


def clock_of(request: HttpRequest) -> ZoneInfo | None:
    """The person's time zone; None while it is not known."""
    found = getattr(request.user, "settings", None)  # read once for each request
    return zone_or_utc(found.timezone) if found and found.timezone else None


def page(request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
    """A whole page with the user's conversations beside it. Scripts are sent 200: they show no other answers."""
    user = person(request)
    beside = {
        "listing": conversations(user),
        "agents": selectors.agents(user).order_by("name"),
        "clock": clock_of(request),
    }
    shown = 200 if is_fragment(request) else status
    return fragment(request, template, shown, **beside | context)


def fragment(request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
    """A part of a page. Its times are on the person's clock."""
    with timezone.override(clock_of(request)):
        return render(request, f"web/{template}", context, status=status)


def leave_to(request: HttpRequest, url: str) -> HttpResponse:
    """Go to another page of this server, also from a fragment."""
    assert url_has_allowed_host_and_scheme(url, None)  # noqa: S101 - addresses are ours
    if is_fragment(request):
        return HttpResponse(status=204, headers={"HX-Redirect": url})
    return HttpResponseRedirect(url, status=303)


def back_to_upcoming(request: HttpRequest, said: str = "") -> HttpResponse | None:
    """The answer to a form of the page of all conversations, which names its `week`; None for a form of another page.

    `said`: what a script shows in the form's place, so that nothing moves under the pointer; empty: the page anew.
    """
    week = request.POST.get("week")
    if week is None:
        return None
    if said and is_fragment(request):
        return HttpResponse(format_html('<p class="note" role="status">{}</p>', said))
    return HttpResponseRedirect(f"{reverse('upcoming')}?{urlencode({'from': week[:10]})}", status=303)


def whole_number(given: str, most: int = LARGEST_NUMBER) -> int | None:
    """The whole number in an address or a form; None if it is not from 0 to `most`."""
    is_number = given.isascii() and given.isdigit() and len(given) <= len(str(most)) and int(given) <= most
    return int(given) if is_number else None


def given_revision(request: HttpRequest) -> int:
    """The revision that the form was made with; one that never existed if the form has none."""
    number = whole_number(request.POST.get("revision", ""))
    return -1 if number is None else number


MOST = 60  # conversations that the list has at first, and that each “more” adds
MOST_SHOWN = 600  # that a list has when it is loaded again
MOST_COUNTED = 1_000
SEARCHED = 200  # the latest conversations whose messages are searched
SEARCHED_MESSAGES = 200  # of each of them, the newest
LONGEST_SEARCHED = 20_000  # characters of each message
LONGEST_QUERY = 100  # characters
LONGEST_PREVIEW = 90  # characters
LOOKED_AT = 300  # characters of a message whose words without Markdown are shown
PEOPLE = (SessionType.PRIMARY, SessionType.SUB)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A part of the list: rows of sessions with what a line shows of them.

    `before`: where the next part begins; empty: there is none. `left`: how many are there, at most MOST_COUNTED.
    `shown`: how many the list has with this part.
    """

    rows: list[Any]
    before: str = ""
    left: int = 0
    shown: int = 0

    @property
    def names_agents(self) -> bool:
        """Whether its lines are of several agents, so that each says whose it is."""
        return len({row.agent_name for row in self.rows}) > 1


def conversations(user: User, *, before: str = "", shown: int = 0) -> Listing:
    """The latest conversations, or those before a place in the list. ValueError for a malformed place.

    `shown` is the number of lines that the browser has. With `before`, the next lines are added to them. Without it, at
    least as many are loaded again, up to MOST_SHOWN.
    """
    most = MOST if before else min(max(shown, MOST), MOST_SHOWN)
    rows = latest(user)
    if before:
        at, key = _place(before)
        rows = rows.filter(Q(updated_at__lt=at) | Q(updated_at=at, pk__lt=key))
    found = list(rows.values_list("pk", "updated_at")[:most])
    left = rows[most : most + MOST_COUNTED].count() if len(found) == most else 0
    last = f"{found[-1][1].isoformat()}_{found[-1][0]}" if left else ""
    listed = _shown(user, [pk for pk, _ in found])
    return Listing(rows=listed, before=last, left=left, shown=len(found) + (shown if before else 0))


def _place(text: str) -> tuple[datetime, uuid.UUID]:
    at, _, key = text.partition("_")
    found = datetime.fromisoformat(at)
    if found.tzinfo is None or not found.year > 1:
        raise ValueError(text)
    return found, uuid.UUID(key)


def search(user: User, query: str) -> Listing:
    """The conversations with these words in their title or in one of their newest messages."""
    query = query.strip()[:LONGEST_QUERY].replace("\x00", "")
    if not query:
        return conversations(user)
    titled = latest(user).filter(title__icontains=query).values_list("pk", flat=True)[:MOST]
    newest = Message.objects.filter(
        session=OuterRef("pk"),
        seq__gt=OuterRef("last_seq") - SEARCHED_MESSAGES,
        role__in=["user", "assistant"],
    )
    said = newest.annotate(text=Left("content", LONGEST_SEARCHED)).filter(text__icontains=query)
    rows = latest(user).annotate(said=Subquery(said.order_by("-seq").values("text")[:1]))
    found = {key: text for key, text in rows.values_list("pk", "said")[:SEARCHED] if text}
    ids = list(dict.fromkeys([*titled, *found]))[:MOST]
    return Listing(rows=_shown(user, ids, {key: _around(text, query) for key, text in found.items()}))


def mark_read(session_id: uuid.UUID, seq: int) -> None:
    """Store that the owner has seen the messages up to this one. Never less than before, nor more than there are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sessions_app_readmark AS r (session_id, seq)"
            " SELECT id, LEAST(last_seq, %(seq)s) FROM sessions_app_session WHERE id = %(session)s"
            " ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq WHERE r.seq < excluded.seq",
            {"session": session_id, "seq": seq},
        )


def latest(user: User) -> QuerySet[Session]:
    """The user's conversations, the latest first."""
    rows = Session.objects.filter(owner_id=user.pk, type__in=PEOPLE)
    return rows.exclude(state=SessionState.DELETING).order_by("-updated_at", "-id")


def _shown(user: User, ids: list[uuid.UUID], texts: dict[uuid.UUID, str] | None = None) -> list[Any]:
    rows: dict[uuid.UUID, Any] = {row.pk: row for row in shown_sessions(user.pk, ids)} if ids else {}
    targets = {row.target_id for row in rows.values()}
    read = dict(ReadMark.objects.filter(pk__in=targets).values_list("pk", "seq"))
    told = told_lately(user)
    for pk, row in rows.items():
        row.name, row.is_primary = title_of(row), row.type == SessionType.PRIMARY
        said = plain((row.last_words or "")[:LOOKED_AT])
        row.preview = (texts or {}).get(pk) or one_line(said, LONGEST_PREVIEW)
        row.is_waiting = row.waiting_size > 0  # it has a question for the person
        row.is_unread = (row.shown_seq or 0) > read.get(row.target_id, 0)
        row.told = told.get(row.target_id)
    return [rows[each] for each in ids if each in rows]


def title_of(session: Any) -> str:
    """The title that people see."""
    is_primary = session.type == SessionType.PRIMARY
    return session.title or (session.agent_name if is_primary else "New conversation")


def _around(text: str, query: str) -> str:
    """The words around the first match."""
    at = max(text.lower().find(query.lower()) - 20, 0)
    return ("… " if at else "") + one_line(text[at : at + LONGEST_PREVIEW], LONGEST_PREVIEW)
