"""Chats of programs that resend their whole history: each is a session, and our history is the truth.

The person's messages are compared with those that were accepted before, never the program's copies of answers. A
history that continues the newest message continues its session; one that leaves it earlier becomes a branch. Messages
that never came to us, such as refused ones and examples, are stored before the new one as the program's own.

All chats of a token that is limited to a session are that session: a new chat goes on there, and none becomes a branch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import QuerySet

from sessions_app.exceptions import IdempotencyMismatch
from sessions_app.memory.files import with_note
from sessions_app.models import Agent, ClientChat, ClientMessage, Turn
from sessions_app.postgres.retry import retry_deadlocks
from sessions_app.postgres.rows import lock_until_commit
from sessions_app.queue.receive import program_message, receive
from sessions_app.reads import selectors
from sessions_app.sessions import client_places
from sessions_app.sessions.client_answers import collect_news
from sessions_app.sessions.client_places import ClientHistory, hashed
from sessions_app.tokens.reach import limit_of


@dataclass(frozen=True, kw_only=True)
class AcceptedMessage:
    """An accepted message: its row and its turn. `repeated`: the turn is that of the same message, sent before."""

    row: ClientMessage
    turn: Turn
    repeated: bool = False


def accept(user: AbstractBaseUser, agent: Agent, given: ClientHistory) -> AcceptedMessage:
    """Queue the last message in the chat's session, or return the turn of the same message sent before.

    HistoryDiverged, SessionBusy, IdempotencyMismatch, TooLarge, and what `receive` raises.
    """
    return retry_deadlocks(lambda: _accept(user, agent, given))


@transaction.atomic
def _accept(user: AbstractBaseUser, agent: Agent, given: ClientHistory) -> AcceptedMessage:
    scope = ClientMessage.objects.filter(chat__agent=agent, chat__door=given.protocol).order_by("-pk")
    of = [str(agent.pk), given.protocol]
    if (only := selectors.only_session(user)) is not None:
        given, scope, of = (
            replace(given, key=f"only:{only.pk}"),
            scope.filter(chat=only.pk),
            [*of, str(only.pk)],
        )
    paths = given.paths()
    # of two requests for one chat the second sees what the first has stored
    lock_until_commit(f"client {agent.pk} {given.protocol} {paths[0] if given.key else paths[1]}")
    request_key = hashed(*of, given.request_key) if given.request_key else ""
    if (earlier := _earlier(scope, given, paths[-1], request_key)) is not None:
        return earlier
    if only is None:
        chat, position = client_places.place(user, agent, given, scope, paths)
    else:
        chat, position = client_places.place_in(only, given, scope, paths)
    written = program_message(with_note(given.text, given.images), limited=bool(limit_of(user)))
    message = replace(written, files=given.images)
    news = collect_news(user, chat)
    turn = receive(chat.session_id, message, agent.owner_id)
    row = ClientMessage.objects.create(
        chat=chat, position=position, path=paths[-1], request_key=request_key, turn=turn, news=news
    )
    return AcceptedMessage(row=row, turn=turn)


def _earlier(
    scope: QuerySet[ClientMessage], given: ClientHistory, path: str, request_key: str
) -> AcceptedMessage | None:
    """Return the same message, if it came before and its answer was not delivered. IdempotencyMismatch.

    Without a key of the chat, only if the program says that it repeats a request: two chats may begin alike.
    """
    found = scope.filter(request_key=request_key).first() if request_key else None
    if found is not None and found.path != path:
        raise IdempotencyMismatch
    if found is None:
        latest = scope.filter(path=path).first()
        again = latest is not None and (given.repeats or (bool(given.key) and not latest.delivered))
        found = latest if again else None
    if found is None or found.turn is None:
        return None
    return AcceptedMessage(row=found, turn=found.turn, repeated=True)


def chat_title(user: AbstractBaseUser, agent: Agent, protocol: str, key: str) -> str:
    """The title of the chat's newest session; empty if there is none, or without a key."""
    if (only := selectors.only_session(user)) is not None:
        return str(only.title)
    if not key:
        return ""
    rows = ClientChat.objects.filter(agent=agent, door=protocol, chat=hashed(key)).order_by("-number")
    return rows.values_list("session__title", flat=True).first() or ""
