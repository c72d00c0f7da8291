"""Errors of the API: each status with its codes, and what a code means; for responses, the schema and docs/errors.md.

`detail` of an error says more, with the value; a meaning is what is true of all errors with the code.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from agent_core.text.formats import status_phrase

PROBLEM = "application/problem+json"
ERRORS_PAGE = "/api/docs/errors/"

_ONE_OF = "is none of the allowed values, which `detail` lists."
_NUMBER = "is not a whole number in the allowed range, which `detail` names."
_TEXT = "is not a text, is too long or contains a NUL character."

CODES: dict[int, dict[str, str]] = {  # the first code is used for errors that have only a status
    400: {
        "bad_request": "The request line, a header, the host name or the address cannot be read.",
        "bad_address": "The channel needs an address, or the given one is not valid for it.",
        "bad_answer": "The answer does not have the form that the question asks for.",
        "bad_channel_meta": "`channel_meta` has an unknown key, or a value that the channel does not take.",
        "bad_chat_type": f"`chat_type` {_ONE_OF}",
        "bad_automation": "The settings of the automation do not fit together.",
        "bad_catch_up": f"`catch_up` {_ONE_OF}",
        "bad_channel": "The channel is not set up on this server, or its name is not valid.",
        "bad_cron": "The cron expression is not valid. It has five fields: minute, hour, day of month, month,"
        " day of week.",
        "bad_active_flow": f"`active_flow` of the task state {_TEXT}",
        "bad_current_goal": f"`current_goal` of the task state {_TEXT}",
        "bad_cursor": "The cursor was not made by this server. Start again without it.",
        "bad_description": f"`description` {_TEXT}",
        "bad_document": "The content of the document contains a NUL character.",
        "bad_enabled": "`enabled` is neither true nor false.",
        "bad_ends_at": "The end of the schedule is no time with a UTC offset, or it leaves no run.",
        "bad_allow_tools": "`allow_tools` names too many tools, or a tool that does not exist.",
        "bad_base_url": "`base_url` of the connection is missing, is no web address, or its host is not allowed.",
        "bad_fallback_model": "The fallback model is not known, or the agent's owner may not use it.",
        "bad_limits": "A limit is not known, or no number: caps have `run`, `day` and `month` with `tokens` and `usd`.",
        "bad_model_settings": "A setting of the model is not known, or its value is out of range.",
        "bad_models": "`models` of the connection has too many names, or names that are not valid.",
        "bad_prices": "`prices` of the connection are no US dollars for a million tokens by model.",
        "bad_provider": "The provider of the connection is missing or not known; `detail` lists the known ones.",
        "bad_engine": f"`engine` {_ONE_OF}",
        "bad_events_url": "`events_url` is no web address, or its host is not allowed.",
        "bad_ping_url": "`ping_url` is no web address, is too long, or its host is not allowed.",
        "bad_except": "`except` of the schedule is no list of dates, or too long a list.",
        "bad_except_holidays": "`except_holidays` of the schedule is no country with known holidays or part of one.",
        "bad_execution_mode": f"`execution_mode` {_ONE_OF}",
        "bad_gate": "The gate has an unknown kind or setting, or its address is not public.",
        "bad_heartbeat": "A setting of the heartbeat is not known, or its value is out of range.",
        "bad_idempotency_key": "`Idempotency-Key` is empty, too long, or has characters that are not printable ASCII.",
        "bad_if_match": '`If-Match` is neither `*` nor a list of tags in quotes, such as `"3"`.',
        "bad_file": "A file is too large, of a kind that cannot be attached, or has no text. `detail` names it.",
        "bad_image": "The image is too large, or not in a supported format. Send it as a data URL.",
        "bad_important_facts": "`important_facts` of the task state is no list of short texts.",
        "bad_input": "A field is missing, unknown, or has a value of the wrong type. `errors` names each field.",
        "bad_instructions": f"`instructions` {_TEXT}",
        "bad_interval": "The interval of the schedule is no whole number of seconds, or too short or too long.",
        "bad_jitter_seconds": f"`jitter_seconds` {_NUMBER}",
        "bad_key": "The key of the session is too long, not printable, or does not begin with the channel.",
        "bad_last_decision": f"`last_decision` of the task state {_TEXT}",
        "bad_max_output_tokens": f"`max_output_tokens` {_NUMBER}",
        "bad_max_retry": f"`max_retry` {_NUMBER}",
        "bad_max_runs": f"`max_runs` {_NUMBER}",
        "bad_mcp_servers": "The settings of an MCP server are not valid, or there are too many servers.",
        "bad_message": "The message contains a NUL character, or is not valid.",
        "bad_model": "The model is not known, or the agent's owner may not use it.",
        "bad_name": "The name is too long, or has characters that are not allowed.",
        "bad_on_busy": f"`on_busy` {_ONE_OF} A hook that is not `as_person` may not interrupt or inject.",
        "bad_open_loops": "`open_loops` of the task state is no list of short texts.",
        "bad_overlap": f"`overlap` {_ONE_OF}",
        "bad_page_size": "`page_size` is not a number from 1 to 200.",
        "bad_parameter": "A query parameter is unknown, repeated, or has a value that is not allowed. `errors`"
        " names each.",
        "bad_paused_from": "`paused_from` is in the past, or not before `paused_until`.",
        "bad_paused_until": "`paused_until` is in the past, or the automation is not enabled.",
        "bad_range": "The range of time is empty or too long.",
        "bad_slot": "`slot` is no time that is still to come.",
        "bad_to": "The run cannot be moved to `to`: that is no coming time within a year, or the automation has a run"
        " then, is paused, or has ended.",
        "bad_skip": "Neither or both of `slots` and `until` are given, or `slots` is out of range.",
        "bad_until": "`until` is no time with a UTC offset in the allowed range.",
        "bad_policy": "A limit of the policy is not known, or its value is out of range.",
        "bad_limit": "The agent or session to which the token is limited is not yours, or both are given.",
        "bad_scopes": "A scope is not known, or there is none; `detail` lists the known ones.",
        "bad_expires_at": "The end of the token is no time with a UTC offset, in the past, or too far away.",
        "bad_routine_limit": f"`routine_limit` {_NUMBER}",
        "bad_rule": "The recurrence rule of the schedule is not valid, or has a part that is not supported.",
        "bad_run": "The body is no run of the AG-UI protocol.",
        "bad_schedule": "The schedule has an unknown kind, or keys that its kind does not have.",
        "bad_sender": f"`sender` {_TEXT}",
        "bad_since": "`since` is after `until`, or too long before it.",
        "bad_source": f"`source` {_ONE_OF}",
        "bad_task_type": f"`task_type` {_ONE_OF} Some need `execution_mode` `inline`.",
        "bad_thread": "The thread belongs to another agent.",
        "bad_time": "The time cannot be read. Use an ISO time with a UTC offset, such as `2027-01-01T09:00:00Z`.",
        "bad_timeout_seconds": f"`timeout_seconds` {_NUMBER}",
        "bad_secret": "The secret of the connection is not valid, or must be entered again for the new address.",
        "bad_title": "The title is too long, or has characters that are not printable.",
        "bad_token": "The text is no token of a Telegram bot, or Telegram does not know it.",
        "bad_unified_session": "`unified_session` is neither true nor false.",
        "bad_webhook_id": "`Webhook-Id` is empty, too long, or has characters that are not printable ASCII.",
        "document_too_long": "The document or the preferences have more characters than allowed.",
        "empty_message": "The message has no text.",
        "empty_name": "The name is empty.",
        "empty_text": "The text of the scheduled message is empty.",
        "empty_title": "The title is empty.",
        "internal_session": "The session belongs to a heartbeat or a job, and takes no messages. Use a conversation.",
        "malformed_body": "The body is no JSON in UTF-8, or is nested too deeply.",
        "message_too_long": "The message has more characters than allowed.",
        "missing_extra": "The server lacks an optional package for this. Its operator can install it.",
        "needs_person": "A person must answer this question; a program may not.",
        "never_fires": "The schedule would never run: it names a day that does not exist, has ended, or excepts all its"
        " days.",
        "no_images": "The model of the agent does not see images.",
        "no_workspace": "The folder contains none of the documents of a workspace.",
        "not_private": "Scheduled messages are for private chats only.",
        "not_editable": "The setting does not exist, or cannot be changed.",
        "past_at": "The time of the schedule has passed.",
        "past_time": "The time of the scheduled message has passed.",
        "reserved_key": "Sessions with this prefix are opened by the server only. Use another prefix.",
        "text_too_long": "The text of the scheduled message has more characters than allowed.",
        "unknown_timezone": "The time zone is not known. Use an IANA name such as `Europe/Berlin`.",
        "unknown_version": "`Rondo-Version` names a version of the API that this server does not have.",
        "unsupported_message": "The message has a part that is not supported, such as a tool of the client.",
        "unsupported_value": "A parameter of the OpenAI-compatible API has a value that is not supported.",
    },
    401: {
        "not_authenticated": "There is no valid token. Send `Authorization: Bearer <token>`.",
        "bad_signature": "The signature does not match the body. Sign the exact bytes with the hook's token.",
        "stale_request": "`Webhook-Timestamp` is more than 300 seconds away from the server's clock.",
    },
    403: {
        "permission_denied": "You may not do this. A browser's session needs its CSRF token for each change.",
        "beyond_limit": "The token is limited to one agent or session, and this is beyond it.",
        "insufficient_scope": "The token lacks the scope that this needs; `detail` names it.",
        "owner_inactive": "The account is inactive.",
    },
    404: {"not_found": "Nothing is at this address, or it is not yours."},
    405: {"method_not_allowed": "The address does not have this method; `Allow` names those that it has."},
    406: {"not_acceptable": "The server cannot answer in a format that `Accept` allows."},
    408: {"body_timeout": "The body did not arrive in time."},
    409: {
        "conflict": "Another request changed the same at the same time. Read it again and repeat the request.",
        "agent_exists": "You have an agent with this name.",
        "bot_exists": "The agent has a Telegram bot. Delete it first.",
        "bot_taken": "The Telegram bot belongs to another agent. Make another bot.",
        "connection_exists": "There is a connection with this name.",
        "connection_in_use": "Agents or their automations use the connection. Change their models first.",
        "duplicate_automation": "The session has an automation with this message and schedule. Send `allow_duplicate`"
        " to create another one.",
        "duplicate_routine": "The agent has a routine with this title and schedule; `routine_id` names it.",
        "execution_ended": "The execution has ended.",
        "history_diverged": "The history that the client sent is not the session's. Read the session again.",
        "job_paused": "The automation is paused. Resume it first.",
        "message_being_sent": "The scheduled message is being sent, so it cannot be cancelled.",
        "message_failed": "The scheduled message has failed, so there is nothing to cancel.",
        "message_sent": "The scheduled message was sent already.",
        "not_failed": "The delivery has not failed; only a failed one can be sent again.",
        "nothing_to_move": "No run of the automation is planned at `slot`.",
        "nothing_to_skip": "The automation is paused or done, or no slot lies in the range.",
        "question_closed": "The question was answered, or is out of date.",
        "question_taken": "Another answer to this question is being processed. Wait for its turn to end.",
        "primary_session": "A primary session is deleted with its agent only, and never archived.",
        "protected_job": "System jobs cannot be changed or deleted.",
        "run_not_failed": "The run has not failed; only a failed run can be tried again.",
        "session_busy": "A turn runs in the session. Wait for it to end, or choose another `on_busy`.",
        "session_closed": "The session is archived or being deleted. `archived`: false opens it again.",
        "session_exists": "The agent has a session with this key.",
        "storage_full": "You have stored as much as a user may (`RONDO_MEGABYTES_PER_USER`). Delete conversations.",
        "too_many_agents": "You have as many agents as a user may have (`RONDO_AGENTS_PER_USER`). Delete one first.",
        "too_many_automations": "The session or you (`RONDO_AUTOMATIONS_PER_USER`) have too many enabled automations.",
        "too_many_connections": "You have as many connections as you may have. Delete one first.",
        "too_many_hooks": "The agent has as many hooks as it may have. Delete one first.",
        "too_many_routines": "The agent (`routine_limit`) or you (`RONDO_AUTOMATIONS_PER_USER`) have too many"
        " routines.",
        "too_many_scheduled_messages": "The session or you (`RONDO_AUTOMATIONS_PER_USER`) have too many pending"
        " messages.",
        "too_many_sessions": "You have as many sessions as a user may have (`RONDO_SESSIONS_PER_USER`). Delete"
        " some first.",
        "too_many_tokens": "You have as many tokens as you may have. Revoke one first.",
        "telegram_away": "Telegram does not answer. Try again.",
        "turn_ended": "The turn has ended, so it cannot be cancelled.",
    },
    412: {"revision_conflict": "`If-Match` does not match: the resource was changed. Read it again."},
    413: {"too_large": "The body is larger than the address takes; the [limits](api.md#limits) are listed."},
    415: {
        "unsupported_media_type": "The `Content-Type` or `Content-Encoding` is not supported. Send plain JSON as"
        " `application/json`."
    },
    422: {
        "idempotency_mismatch": "The `Idempotency-Key` or `Webhook-Id` was used with another body. Use a new one."
    },
    429: {
        "throttled": "You have sent too many requests. Wait for the seconds in `Retry-After`.",
        "too_many_streams": "You have as many open streams as you may have. Close one and try again.",
        "too_many_tickets": "You have asked for too many tickets. Wait for the seconds in `Retry-After`.",
        "too_many_waiting": "Too many messages wait in the session. Wait for the seconds in `Retry-After`.",
    },
    500: {
        "server_error": "A bug. It was logged; tell the operator the `X-Request-Id`.",
        "pooled_connection": "The operator must set `DATABASE_LOCK_URL` to an address without a connection pooler.",
        "secret_unreadable": "The server's key has changed, so a stored secret cannot be read. Enter it again.",
    },
    503: {
        "unavailable": "The server is busy, or its database does not answer. Wait for the seconds in `Retry-After`."
    },
}
STATUS = {code: status for status, codes in CODES.items() for code in codes}

BODY = "body"
_TIMES = ("send_at", "next_run_at", "schedule.at", "schedule.starts_at", "schedule")
# the fields or headers that a code concerns: the first of them that the request has, else the first. A code that is not
# listed concerns the field of its name (`bad_<field>`, `empty_<field>`), or the request as a whole
FIELDS: dict[str, tuple[str, ...]] = {
    "bad_automation": (),
    "bad_input": (),
    "bad_request": (),
    "bad_channel": ("channel", "address"),
    "bad_cron": ("schedule.expr", "schedule"),
    "bad_document": ("content",),
    "bad_except": ("schedule.except", "schedule"),
    "bad_except_holidays": ("schedule.except_holidays", "schedule"),
    "bad_idempotency_key": ("Idempotency-Key",),
    "bad_if_match": ("If-Match",),
    "bad_interval": ("schedule.seconds", "schedule"),
    "bad_message": ("content", "message", "message_text"),
    "bad_rule": ("schedule.rule", "schedule"),
    "bad_run": (BODY,),
    "bad_skip": ("slots", BODY),
    "bad_thread": ("threadId",),
    "bad_time": _TIMES,
    "bad_webhook_id": ("Webhook-Id",),
    "document_too_long": ("content",),
    "empty_message": ("content", "message", "message_text"),
    "empty_text": ("message_text",),
    "malformed_body": (BODY,),
    "internal_session": ("session",),
    "message_too_long": ("content", "message"),
    "never_fires": (
        "schedule.expr",
        "schedule.rule",
        "schedule",
        "next_run_at",
        "ends_at",
        "paused_until",
        "enabled",
    ),
    "past_at": (*_TIMES, "enabled"),
    "past_time": (*_TIMES, "expires_at"),
    "reserved_key": ("key", "channel"),
    "text_too_long": ("message_text",),
    "unknown_timezone": ("schedule.timezone", "timezone", *_TIMES),
    "unsupported_message": ("messages",),
}


def status_of(code: str) -> int:
    """The HTTP status of a domain error; 400 for codes that are not in the table."""
    return STATUS.get(code, 400)


def code_of(status: int) -> str:
    """The code of an error that has only a status."""
    return next(iter(CODES.get(status, ("refused",))))


def type_of(code: str) -> str:
    """The URL of the documentation of a code; relative to the server unless RONDO_DOCS_URL is set."""
    return f"{settings.RONDO_DOCS_URL or ERRORS_PAGE}#{code}"


def problem_body(status: int, code: str, detail: str) -> dict[str, Any]:
    """`{type, title, status, code, detail}`, the body of each error of the API."""
    title = status_phrase(status)
    return {"type": type_of(code), "title": title, "status": status, "code": code, "detail": detail}
