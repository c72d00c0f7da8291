"""Ids, summaries and tags of operations in the OpenAPI schema: derived from method and path, with a few exceptions."""

from __future__ import annotations

from dataclasses import dataclass

ACTIONS = {"answer", "cancel", "explain", "preview", "redeliver", "skip", "test"}
VERBS = {"GET": "get", "POST": "create", "PATCH": "update", "PUT": "replace", "DELETE": "delete"}
ONE_THING = {
    "memory",
    "preferences",
    "signing-secret",
    "telegram",
    "mailbox",
}  # no lists, whatever their names say
PLURAL_IES = {"deliveries": "delivery", "memories": "memory"}
TAGS = {
    "agents": "Agents, their documents and preferences, and the events for all their windows.",
    "sessions": "Conversations: messages, events, memory and mailbox.",
    "turns": "What a message or an automation makes the agent do.",
    "automations": "Schedules of a session: every run is a turn.",
    "routines": "An agent's recurring tasks, which also stand in HEARTBEAT.md.",
    "runs": "One slot of an automation, a routine or a scheduled message, and what became of it.",
    "scheduled-messages": "Texts that are sent at a time, without a model.",
    "schedules": "Check a schedule before it is used.",
    "executions": "Plans of agents with the engine `planner`, and their questions.",
    "questions": "Questions for consent before a tool is used.",
    "deliveries": "Answers on their way to a channel.",
    "hooks": "Addresses by which other systems post messages.",
    "connections": "Providers of models, with your own keys.",
    "telegram": "An agent's Telegram bot and its chats.",
    "tokens": "Tokens of programs.",
    "usage": "Tokens and US dollars of your turns.",
    "stream-tickets": "Tickets with which the EventSource of a browser opens a stream.",
}


@dataclass(frozen=True)
class Name:
    """An operation's id, and what it does in a few words."""

    id: str
    summary: str


_EXCEPTIONS = {
    ("POST", "sessions/messages"): Name("send_message", "Send a message"),
    ("POST", "hooks/messages"): Name("post_hook_message", "Post a message by a hook"),
    ("POST", "hooks/token"): Name("replace_hook_token", "Replace a hook's token"),
    ("POST", "agents/signing-secret"): Name("replace_signing_secret", "Replace an agent's signing key"),
    ("GET", "agents/signing-secret"): Name("get_signing_secret", "Get an agent's signing key"),
    ("POST", "agents/telegram"): Name("create_telegram_bot", "Give an agent a Telegram bot"),
    ("GET", "agents/telegram"): Name("get_telegram_bot", "Get an agent's Telegram bot"),
    ("PATCH", "agents/telegram"): Name("update_telegram_bot", "Change an agent's Telegram bot"),
    ("DELETE", "agents/telegram"): Name("delete_telegram_bot", "Delete an agent's Telegram bot"),
    ("GET", "agents/telegram/chats"): Name("list_telegram_chats", "List the chats of a Telegram bot"),
    ("DELETE", "agents/telegram/chats/*"): Name("delete_telegram_chat", "Disconnect a Telegram chat"),
    ("POST", "agents/telegram/code"): Name(
        "create_telegram_code", "Make a code that connects a Telegram chat"
    ),
    ("GET", "agents/events"): Name("stream_agent_events", "Stream an agent's events"),
    ("GET", "sessions/events"): Name("stream_session_events", "Stream a session's events"),
    ("GET", "sessions/mailbox"): Name("list_session_mailbox", "List the updates in a session's mailbox"),
    ("POST", "automations/skip"): Name("skip_automation_slots", "Skip the next slots of an automation"),
    ("DELETE", "scheduled-messages/*"): Name("cancel_scheduled_message", "Cancel a scheduled message"),
}


def tag_of(path: str) -> str:
    """The tag of an operation: the last resource in its path that has one."""
    segments = _segments(path)
    return next((each for each in reversed(segments) if each in TAGS), segments[0])


def name_of(method: str, path: str) -> Name:
    """Id and summary of an operation."""
    segments, is_item = _segments(path), path.rstrip("/").endswith("}")
    key = "/".join(segments) + ("/*" if is_item else "")
    if found := _EXCEPTIONS.get((method, key)):
        return found
    *parents, last = segments
    owner = [_singular(each) for each in parents]
    if last in ACTIONS:
        return Name(_id(last, *owner), f"{last.capitalize()} {_a(owner[-1])}")
    verb = VERBS[method]
    is_list = method == "GET" and not is_item and last.endswith("s") and last not in ONE_THING
    thing = last if is_list or last in ONE_THING else _singular(last)
    verb = "list" if is_list else verb
    return Name(_id(verb, *owner, thing), _summary(verb, owner, thing))


def _summary(verb: str, owner: list[str], thing: str) -> str:
    words = thing.replace("-", " ")
    if verb == "list" and not owner:
        return f"List your {words}"
    if thing in ONE_THING or verb == "list":
        return f"{verb.capitalize()} {_a(owner[-1])}'s {words}"
    if not owner or thing == "revision":
        return f"{verb.capitalize()} {_a(thing)}"
    link = "of" if verb != "create" else "in" if owner[-1] == "session" else "for"
    return f"{verb.capitalize()} {_a(thing)} {link} {_a(owner[-1])}"


def _id(*words: str) -> str:
    return "_".join(words).replace("-", "_")


def _segments(path: str) -> list[str]:
    """The names in a path under /api/, without its parameters."""
    return [each for each in path.strip("/").split("/")[1:] if not each.startswith("{")]


def _singular(word: str) -> str:
    return PLURAL_IES.get(word) or word.removesuffix("s")


def _a(noun: str) -> str:
    words = noun.replace("-", " ")
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
