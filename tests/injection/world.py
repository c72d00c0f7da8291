"""A person, and rows of every model, full of hostile text."""

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Model
from django.db.models.functions import Now

from agent_core.execution import Status, new_id
from automations.models import (
    CronJob,
    ExecutionMode,
    JobClock,
    MessageStatus,
    RunRecord,
    RunState,
    ScheduledMessage,
)
from sessions_app.agents.documents import put_document
from sessions_app.agents.edit import create_agent
from sessions_app.models import (
    ApiToken,
    Attachment,
    Delivery,
    DeliveryState,
    ExecutionState,
    MailboxEvent,
    Preference,
    Session,
    TelegramBot,
    TelegramChat,
)
from tests.admin.conftest import NOW, fill
from tests.conftest import Person
from tests.injection.columns import (
    ATTACHED,
    LEGACY,
    SHAPE_OF_LEGACY,
    SHAPES,
    hostile_columns,
    written_columns,
)
from tests.injection.corpus import BLOCKS, packed

ROUNDS = 8  # rows of each model: a column of 200 characters has room for some of the corpus only
SHORT = 18  # rows more of models with a column for one payload


@dataclass(kw_only=True)
class World:
    """`rows`: of each round, a row of every model by name; `texts`: by column, what its rows hold."""

    person: Person
    staff: User
    rows: list[dict[str, Any]]
    texts: dict[str, list[str]] = field(default_factory=dict)

    def every(self, name: str) -> list[Any]:
        """The rows of this name, one of each round."""
        return [each[name] for each in self.rows]


def hostile_world(person: Person) -> World:
    """Rows of every model that belong to the person, with each text of users and models replaced."""
    staff = User.objects.create(username="boss", is_staff=True, is_superuser=True)
    with transaction.atomic():  # no worker sees a delivery before it has ended
        rows = [_more(fill(person), staff, number) for number in range(ROUNDS)]
    for number in range(ROUNDS):
        User.objects.create(username=f"user{number}")
        agent = create_agent(person.user, f"agent {number}")
        _bot(agent, number)
    CronJob.objects.exclude(system_event="").delete()  # so that none is due
    primary = Session.objects.get(agent=person.agent, type="primary")
    MailboxEvent.objects.bulk_create(MailboxEvent(target=primary, event_type="x") for _ in range(SHORT))
    ApiToken.objects.bulk_create(_token(person.user, number) for number in range(SHORT))
    files = {"session": rows[0]["session"], "media_type": "text/plain", "content": b"x"}
    Attachment.objects.bulk_create(Attachment(id=each, **files) for each in ATTACHED)
    given = {"session": rows[0]["session"], "send_at": NOW, "message_text": "x"}
    given["status"] = MessageStatus.CANCELLED
    ScheduledMessage.objects.bulk_create(ScheduledMessage(id=f"old{n}", **given) for n in range(ROUNDS))
    for content in ("first", "again"):
        put_document(person.agent.pk, "USER.md", content)
    Preference.objects.create(agent=person.agent, user=person.user, content="x")
    world = World(person=person, staff=staff, rows=rows)
    _poison(world)
    return world


def _more(rows: dict[str, Any], staff: User, number: int) -> dict[str, Any]:
    """What the pages show beside one row of every model. Nothing of it is due: no worker touches it."""
    session, agent = rows["session"], rows["agent"]
    Delivery.objects.filter(pk=rows["delivery"].pk).update(
        state=DeliveryState.FAILED, last_error="x", next_attempt_at=None
    )
    asked = {"status": Status.WAITING_USER, "question": "x", "asked_at": Now()}
    rows["executionstate"] = ExecutionState.objects.create(
        id=new_id(), session=session, source="message", **asked
    )
    every = {"agent": agent, "message": "x", "schedule_kind": "every", "every_seconds": 3600, "anchor": NOW}
    rows["legacy"] = CronJob.objects.create(name="old", **every)
    isolated = ExecutionMode.ISOLATED
    rows["routine"] = CronJob.objects.create(name="news", home=session, execution_mode=isolated, **every)
    for name in ("legacy", "routine"):
        JobClock.objects.create(job=rows[name], next_run_at=None)
    message, ended = rows["scheduledmessage"], {"state": RunState.FAILED, "finished_at": NOW}
    rows["told"] = RunRecord.objects.create(
        run_id=f"{message.pk}:1", scheduled_message=message, session=session, scheduled_for=NOW, **ended
    )
    rows["group"] = Group.objects.create(name=f"group {number}")
    bot = rows["telegrambot"]
    TelegramBot.objects.filter(pk=bot.pk).update(enabled=False)  # else a worker would poll it
    TelegramChat.objects.create(bot=bot, chat_id=4001 + number, name="x")
    if number == 0:
        Session.objects.filter(pk=session.pk).update(channel="telegram")
    waits = ScheduledMessage.objects.filter(pk=rows["scheduledmessage"].pk)
    if number % 3 == 1:
        waits.update(status=MessageStatus.FAILED, last_error="x")
    elif number % 3 == 2:
        waits.update(status=MessageStatus.CANCELLED)
    for row in (session, rows["user"]):
        kind = ContentType.objects.get_for_model(row)
        about = {"action_flag": CHANGE, "object_repr": "x", "change_message": "x"}
        LogEntry.objects.create(user=staff, content_type=kind, object_id=row.pk, **about)
    return rows


def _token(user: User, number: int) -> ApiToken:
    digest = hashlib.sha256(f"token {number}".encode()).hexdigest()
    key = uuid.uuid4().hex[:12]
    return ApiToken(id=key, user=user, name="x", token_sha256=digest, prefix="x", scopes=["read"])


def _bot(agent: Any, number: int) -> TelegramBot:
    given = {"telegram_id": number + 1, "username": "x", "token_ciphertext": "x", "enabled": False}
    return TelegramBot.objects.create(agent=agent, **given)


def _poison(world: World) -> None:
    places = hostile_columns()
    for label, names in sorted(written_columns().items()):
        model = apps.get_model(label)
        begins: dict[str, int] = {}  # each row of a column goes on where the one before had no more room
        for count, row in enumerate(model._default_manager.order_by("pk")):
            given = {}
            for name in _fitting(row, names):
                begin = begins.get(name, 0)
                text, begins[name] = _text(f"§{places.index(f'{label}.{name}')}.{count}", row, name, begin)
                world.texts.setdefault(f"{label}.{name}", []).append(text)
                given[name] = _shape(label, name, text)
            model._default_manager.filter(pk=row.pk).update(**given)


def _fitting(row: Model, names: Iterable[str]) -> list[str]:
    """The columns that may be changed in this row."""
    found = list(names)
    if isinstance(row, CronJob) and row.session_id is None and row.home_id is None:
        found += [*LEGACY.split(), *SHAPE_OF_LEGACY]
    if isinstance(row, ScheduledMessage):
        barred = {"failed": "last_error", "cancelled": "cancelled_by_tool_call_id"}
        found = [name for name in found if name not in barred.values() or name == barred.get(row.status)]
    if isinstance(row, Session) and row.type == "primary":
        found.remove("key")  # it is how the server finds this session
    return found


def _text(marker: str, row: Model, name: str, begin: int) -> tuple[str, int]:
    column: Any = row._meta.get_field(name)
    room = getattr(column, "max_length", None)
    text, count = packed(marker, room, begin)
    if room is None and isinstance(row, apps.get_model("sessions_app.Message")) and name == "content":
        text = "\n\n".join([text, *BLOCKS])
    return text, begin + count


def _shape(label: str, name: str, text: str) -> Any:
    shape = SHAPES.get(f"{label}.{name}") or SHAPE_OF_LEGACY.get(name if label.endswith("CronJob") else "")
    return shape(text) if shape else text


def forms_of(text: str) -> list[str]:
    """How a page may show the text: as it is, or within JSON."""
    within = [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)]
    return [" ".join(each.split()) for each in (text, *within)]
