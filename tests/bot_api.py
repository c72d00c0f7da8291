"""A Bot API server for tests, over real HTTP, on the standard library alone.

It behaves like Telegram's: an update is given out until a question for updates confirms it by its offset; a question
waits while there is none, and a second one at the same time ends the first with 409. Tests can make it fail and hang.
"""

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs

from interfaces.telegram.channel import Telegram
from tests.conftest import channel

TOKEN = "123456789:AAF-the-token-that-BotFather-gave-you"  # of the how-to and the schema
USERNAME = "rondo_test_bot"
LONGEST = 4_096  # UTF-16 code units of a message


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message that the server accepted."""

    id: int
    chat: int
    text: str
    buttons: tuple[tuple[str, str], ...] = ()


@dataclass(kw_only=True)
class Trouble:
    """How a method fails, for `times` calls after `after` good ones."""

    status: int
    times: int
    after: int = 0
    retry_after: int = 0


@dataclass
class BotApi:
    """The server of one bot, in threads of this process. Use it as a context manager."""

    bot_id: int = 123456789
    token: str = TOKEN
    username: str = USERNAME
    updates: list[dict[str, Any]] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    presses: dict[str, str] = field(default_factory=dict)  # what was shown at pressed buttons
    removed: list[int] = field(default_factory=list)  # messages whose buttons were removed
    calls: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    blocked: set[int] = field(default_factory=set)
    troubles: dict[str, Trouble] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count(1_000)
        self._poll = 0
        self._hangs: set[str] = set()
        self.is_hasty = False  # answers at once that there are no updates
        self.is_gone = False  # closes connections without an answer
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.api = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._hangs.clear()
            self._poll += 1
            self._changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def say(self, chat: int, text: str | None = None, *, sender: int = 0, **more: Any) -> dict[str, Any]:
        """A person writes in a private chat; with a negative id, in a group."""
        return self._push("message", self._message(chat, text, sender, more))

    def edit(self, chat: int, text: str) -> dict[str, Any]:
        """A person edits a message."""
        return self._push("edited_message", self._message(chat, text, 0, {"edit_date": int(time.time())}))

    def press(self, sent: Sent, label: str, *, by: int = 0, data: str = "") -> str:
        """Press the button of a message; returns the id of the press."""
        found = data or dict(sent.buttons)[label]
        press = f"press-{next(self._numbers)}"
        message = self._message(sent.chat, sent.text, self.bot_id, {}) | {"message_id": sent.id}
        query = {"id": press, "from": _user(by or sent.chat), "chat_instance": "1", "data": found}
        self._push("callback_query", query | {"message": message})
        return press

    def fail(self, method: str, status: int, *, times: int = 1, after: int = 0, retry_after: int = 0) -> None:
        """Let calls of a method fail."""
        self.troubles[method] = Trouble(status=status, times=times, after=after, retry_after=retry_after)

    @contextmanager
    def hanging(self, *methods: str) -> Iterator[None]:
        """These methods do not answer meanwhile."""
        with self._changed:
            self._hangs |= set(methods)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._hangs -= set(methods)
                self._changed.notify_all()

    def texts(self, chat: int) -> list[str]:
        """The texts that were sent to a chat."""
        return [each.text for each in self.sent if each.chat == chat]

    def answer(self, method: str, given: dict[str, str]) -> tuple[int, Any]:
        """Status and result, or description and parameters, of a call."""
        self.calls[method] += 1
        with self._changed:
            hangs = method in self._hangs
            self._changed.wait_for(lambda: method not in self._hangs, 60)
        if hangs:  # nobody waits for it any more
            return 503, {"description": "Service Unavailable"}
        trouble = self.troubles.get(method)
        if trouble is not None and trouble.after > 0:
            trouble.after -= 1
        elif trouble is not None and trouble.times > 0:
            trouble.times -= 1
            wait = {"parameters": {"retry_after": trouble.retry_after}} if trouble.retry_after else {}
            return trouble.status, {"description": f"trouble with {self.token}"} | wait
        found = getattr(self, "_" + re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", method), None)
        return found(given) if found else (404, {"description": "Not Found: method not found"})

    def _push(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            update = {"update_id": next(self._numbers), kind: content}
            self.updates.append(update)
            self._changed.notify_all()
        return update

    def _message(self, chat: int, text: str | None, sender: int, more: dict[str, Any]) -> dict[str, Any]:
        where = {"id": chat, "type": "private" if chat > 0 else "group", "title": "A group"}
        who = sender or (chat if chat > 0 else 77)
        said = {} if text is None else {"text": text}
        about = {"message_id": next(self._numbers), "date": int(time.time()), "chat": where}
        return about | {"from": _user(who)} | said | more

    def _get_me(self, _given: dict[str, str]) -> tuple[int, Any]:
        return 200, {"id": self.bot_id, "is_bot": True, "first_name": "Test", "username": self.username}

    def _get_updates(self, given: dict[str, str]) -> tuple[int, Any]:
        with self._changed:
            self._poll += 1
            mine = self._poll
            self._changed.notify_all()  # a question that waits ends
            if given.get("offset"):
                first = int(given["offset"])
                self.updates = [each for each in self.updates if each["update_id"] >= first]
            wait = 0.0 if self.is_hasty else float(given.get("timeout") or 0)
            self._changed.wait_for(
                lambda: self._poll != mine or self.updates or "getUpdates" in self._hangs, wait
            )
            if self._poll != mine:
                self.conflicts += 1
                return 409, {"description": "Conflict: terminated by other getUpdates request"}
            return 200, self.updates[: int(given.get("limit") or 100)]

    def _send_message(self, given: dict[str, str]) -> tuple[int, Any]:
        chat, text = int(given["chat_id"]), given.get("text", "")
        if chat in self.blocked:
            return 403, {"description": "Forbidden: bot was blocked by the user"}
        if not text.strip():
            return 400, {"description": "Bad Request: message text is empty"}
        if len(text.encode("utf-16-le")) // 2 > LONGEST:
            return 400, {"description": "Bad Request: message is too long"}
        rows = json.loads(given.get("reply_markup") or "{}").get("inline_keyboard", [])
        buttons = tuple((each["text"], each["callback_data"]) for row in rows for each in row)
        if any(len(data.encode()) > 64 for _, data in buttons):
            return 400, {"description": "Bad Request: BUTTON_DATA_INVALID"}
        sent = Sent(id=next(self._numbers), chat=chat, text=text, buttons=buttons)
        self.sent.append(sent)
        return 200, self._message(chat, text, self.bot_id, {}) | {"message_id": sent.id}

    def _send_chat_action(self, _given: dict[str, str]) -> tuple[int, Any]:
        return 200, True

    def _answer_callback_query(self, given: dict[str, str]) -> tuple[int, Any]:
        self.presses[given["callback_query_id"]] = given.get("text", "")
        return 200, True

    def _edit_message_reply_markup(self, given: dict[str, str]) -> tuple[int, Any]:
        self.removed.append(int(given["message_id"]))
        return 200, True


@contextmanager
def serving_bots(settings: Any) -> Iterator[BotApi]:
    """A Bot API for this process, and the channel."""
    with contextmanager(channel)(Telegram()), BotApi() as api:
        settings.RONDO_TELEGRAM_URL = api.url
        yield api


def _user(number: int) -> dict[str, Any]:
    return {"id": number, "is_bot": number == 123456789, "first_name": f"Person {number}"}


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    api: BotApi


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        if self.path == "/control/say":  # for tests that are shell scripts
            said = json.loads(raw)
            self.server.api.say(said["chat"], said["text"])
            self._json(200, {})
            return
        if self.server.api.is_gone:
            self.close_connection = True
            return
        _, bot, method = self.path.split("/", 2)
        if bot != f"bot{self.server.api.token}":
            self._json(401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
            return
        given = {name: values[-1] for name, values in parse_qs(raw, keep_blank_values=True).items()}
        status, result = self.server.api.answer(method, given)
        if status == 200:
            self._json(200, {"ok": True, "result": result})
        else:
            self._json(status, {"ok": False, "error_code": status, **result})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Stay quiet."""

    def _json(self, status: int, body: Any) -> None:
        raw = json.dumps(body).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)
        except OSError:
            self.close_connection = True  # the client is gone
