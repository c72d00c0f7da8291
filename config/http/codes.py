"""Error codes and their HTTP statuses: one table for responses and for the OpenAPI schema."""

from __future__ import annotations

CODES: dict[int, tuple[str, ...]] = {  # the first code is used for errors that have only a status
    400: (
        "bad_request",
        *("bad_address", "bad_channel_meta", "bad_chat_type", "bad_automation", "bad_catch_up"),
        *("bad_channel", "bad_cron", "bad_active_flow", "bad_current_goal", "bad_cursor"),
        *("bad_description", "bad_document", "bad_enabled", "bad_ends_at", "bad_allow_tools"),
        *("bad_engine", "bad_execution_mode", "bad_heartbeat", "bad_idempotency_key", "bad_if_match"),
        *("bad_important_facts", "bad_input", "bad_instructions", "bad_interval", "bad_jitter_seconds"),
        *("bad_key", "bad_last_decision", "bad_max_retry", "bad_max_runs", "bad_mcp_servers"),
        *("bad_message", "bad_model", "bad_name", "bad_on_busy", "bad_open_loops", "bad_overlap"),
        *(
            "bad_page_size",
            "bad_parameter",
            "bad_paused_until",
            "bad_skip",
            "bad_until",
            "bad_policy",
            "bad_routine_limit",
            "bad_schedule",
        ),
        *("bad_sender", "bad_source", "bad_task_type", "bad_time", "bad_timeout_seconds", "bad_title"),
        *("bad_unified_session", "bad_webhook_id", "document_too_long", "empty_message", "empty_name"),
        *("empty_text", "empty_title", "internal_session", "malformed_body", "message_too_long"),
        *("never_fires", "no_workspace", "not_private", "not_editable", "past_at", "past_time"),
        *("reserved_key", "text_too_long", "unknown_timezone"),
    ),
    401: ("not_authenticated", "bad_signature", "stale_request"),
    403: ("permission_denied", "owner_inactive"),
    404: ("not_found",),
    405: ("method_not_allowed",),
    406: ("not_acceptable",),
    408: ("body_timeout",),
    409: (
        "conflict",
        *("agent_exists", "duplicate_routine", "execution_ended", "message_being_sent"),
        *(
            "message_failed",
            "message_sent",
            "not_failed",
            "nothing_to_skip",
            "question_closed",
            "question_taken",
        ),
        *("primary_session", "protected_job", "session_busy", "session_closed", "session_exists"),
        *("too_many_automations", "too_many_hooks", "too_many_routines", "too_many_scheduled_messages"),
        *("turn_ended",),
    ),
    412: ("revision_conflict",),
    413: ("too_large",),
    415: ("unsupported_media_type",),
    422: ("idempotency_mismatch",),
    429: ("throttled", "too_many_streams", "too_many_waiting"),
    500: ("server_error", "pooled_connection"),
    503: ("unavailable",),
}
STATUS = {code: status for status, codes in CODES.items() for code in codes}


def status_of(code: str) -> int:
    """The HTTP status of a domain error; 400 for codes that are not in the table."""
    return STATUS.get(code, 400)


def code_of(status: int) -> str:
    """The code of an error that has only a status."""
    return CODES.get(status, ("refused",))[0]
