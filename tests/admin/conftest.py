"""A superuser's client, and rows of every model."""

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

import config.urls  # noqa: F401 - the pages of the admin are loaded with the addresses
from agent_core.types import Role, StepKind
from automations.models import CronJob, RunRecord, RunState
from automations.scheduled_messages import MessageToSchedule, schedule_message
from sessions_app.connections.edit import add_connection
from sessions_app.hooks.edit import NewHook, add_hook
from sessions_app.models import (
    Allowance,
    ConsentQuestion,
    Delivery,
    Document,
    DocumentRevision,
    Event,
    EventType,
    IdempotencyKey,
    Lane,
    MailboxEvent,
    Message,
    Process,
    Reservation,
    Session,
    Spending,
    TaskState,
    TelegramBot,
    Turn,
    TurnKind,
    TurnState,
    TurnStep,
    Worker,
)
from sessions_app.spending.accounts import set_user_caps
from tests.automations.jobs.made import new
from tests.conftest import Person, new_person

NOW = datetime(2026, 11, 21, 9, 0, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def fast_passwords(settings: Any) -> None:
    """A real hash takes longer than most tests."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def person(db: None) -> Person:
    """Someone with an agent; in a transaction that is rolled back, unless the test is marked otherwise."""
    return new_person("ada")


@pytest.fixture
def staff(db: None) -> Client:
    """A superuser who has logged in."""
    client = Client(raise_request_exception=True)
    client.force_login(get_user_model().objects.create_superuser("root", password="pw"))
    return client


@pytest.fixture
def boss(db: None) -> Any:
    """A superuser with a password."""
    return get_user_model().objects.create_superuser("boss", email="boss@example.org", password="right")


def url(row: Any, page: str) -> str:
    """The address of a row's page, or of its model's list."""
    meta = row._meta
    args = [] if page in {"changelist", "add"} else [row.pk]
    return reverse(f"admin:{meta.app_label}_{meta.model_name}_{page}", args=args)


def shown(client: Client, row: Any, page: str = "change", **query: Any) -> str:
    """The text of a row's page, or of its model's list."""
    answer = client.get(url(row, page), query)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def act(client: Client, action: str, *rows: Any, follow: bool = True, **more: Any) -> Any:
    """Choose the rows in their list, and the action."""
    data = {"action": action, "index": "0", "_selected_action": [row.pk for row in rows]} | more
    return client.post(url(rows[0], "changelist"), data, follow=follow)


def agent_form(agent: Any, **given: Any) -> dict[str, Any]:
    """What the form of an agent sends, with these changes."""
    return {
        "model": "offline", "timezone": "UTC", "engine": "chat", "routine_limit": "20", "policy": "{}",
        "heartbeat": json.dumps(agent.heartbeat), "mcp_servers": "{}", "seen_revision": agent.revision,
    } | given  # fmt: skip


def make_job(session: Session, name: str = "look at the repo", **given: Any) -> CronJob:
    return new(session, message=name, **({"schedule": {"kind": "cron", "expr": "0 9 * * *"}} | given))


def make_turn(session: Session, state: TurnState = TurnState.SUCCEEDED, **fields: Any) -> Turn:
    ended = None if state in {TurnState.QUEUED, TurnState.RUNNING} else NOW
    given = {"kind": TurnKind.MESSAGE, "lane": Lane.PEOPLE, "content": "<b>hello</b>", "started_at": NOW}
    return Turn.objects.create(session=session, state=state, finished_at=ended, **(given | fields))


def fill(person: Person) -> dict[str, Any]:
    """One row of every model, in a new session."""
    session = person.session(title="A thread")
    turn = make_turn(session, error_detail="Traceback …")
    step = TurnStep.objects.create(turn=turn, n=0, kind=StepKind.PROMPT, data={"text": "<i>x</i>"})
    message = Message.objects.create(
        session=session, seq=1, role=Role.USER, content="<script>alert(1)</script>", turn=turn
    )
    job = make_job(session)
    failed = {"state": RunState.FAILED, "finished_at": NOW + timedelta(seconds=1), "turn": turn}
    shown = {"rendered_prompt": "the rendered prompt", "prompt_variables": {"name": "the variable"}}
    shown["error_detail"] = "the operators' detail"
    run = RunRecord.objects.create(
        run_id=f"{job.pk}:1", job=job, session=session, scheduled_for=NOW, **failed, **shown
    )
    chat = {"channel": "telegram", "address": "42"}
    call = {"id": "1", "name": "erase", "arguments": {"name": "<b>disk</b>"}, "version": "v"}
    long_gone = {"turn_id": 2**40, "asked_seq": 1}
    answers: dict[str, Any] = {"channel": "webhook", "address": "https://ci.example/answers"}
    hook = NewHook(agent_id=person.agent.pk, name="CI", session_id=session.pk, **answers)
    bot = {"telegram_id": uuid.uuid4().int % 10**12, "username": "work_bot"}
    bot["token_ciphertext"] = "QmFzdGVsbGFuLTQ3MTE-of-a-bot"
    document = Document.objects.create(agent=person.agent, name=f"{uuid.uuid4().hex}.md", content="text")
    return {
        "agent": person.agent,
        "document": document,
        "documentrevision": DocumentRevision.objects.create(
            document=document, revision=1, content="<b>old</b>"
        ),
        "consentquestion": ConsentQuestion.objects.create(
            id=uuid.uuid4().hex[:8], session=session, text="May <i>erase</i> run?", calls=[call], **long_gone
        ),
        "session": session,
        "turn": turn,
        "turnstep": step,
        "message": message,
        "mailboxevent": MailboxEvent.objects.create(
            target=session, event_type="job_completed", summary="done"
        ),
        "delivery": Delivery.objects.create(
            session=session, session_key=session.key, message=message, idempotency_key=f"run:{run.pk}", **chat
        ),
        "taskstate": TaskState.objects.create(session=session, current_goal="hello", open_loops=["<b>x</b>"]),
        "event": Event.objects.create(agent=person.agent, session=session, type=EventType.STATUS),
        "process": Process.objects.create(kind="web", host="host", pid=1, version="0.1.0"),
        "worker": Worker.objects.create(host="host", pid=1),
        "cronjob": job,
        "runrecord": run,
        "scheduledmessage": schedule_message(
            MessageToSchedule(
                session_id=session.pk, send_at="2099-01-01T00:00:00Z", message_text="<b>later</b>"
            )
        ).message,
        "userlimits": set_user_caps(person.user.pk, {"day": {"usd": "1.00"}}),
        "spending": Spending.objects.create(key=f"agent:{uuid.uuid4()}:day:2026-11-28"),
        "reservation": Reservation.objects.create(tokens=1, micro_usd=2, caps=[{"key": "agent:1:run:x"}]),
        "allowance": Allowance.objects.create(
            key=f"user:{person.user.pk} {uuid.uuid4()}", full_at=datetime.now(UTC) + timedelta(days=1)
        ),
        "idempotencykey": IdempotencyKey.objects.create(
            user=person.user, address="POST /api/sessions/", key=uuid.uuid4().hex
        ),
        "hook": add_hook(hook),
        "connection": add_connection(
            person.user,
            f"work-{uuid.uuid4().hex[:8]}",
            {"provider": "openai-chat", "secret": "QmFzdGVsbGFuLTQ3MTE-of-a-connection", "models": ["m"]},
        ),
        "telegrambot": TelegramBot.objects.get_or_create(agent=person.agent, defaults=bot)[0],
        "user": person.user,
    }


@pytest.fixture
def rows(person: Person) -> dict[str, Any]:
    """One row of every model."""
    return fill(person)
