"""The codes of refusals and their HTTP statuses: one table for the answers and for the OpenAPI schema."""

from __future__ import annotations

CODES: dict[int, tuple[str, ...]] = {  # the first is that of a refusal which carries only a status
    400: (
        "bad_request",
        "bad_automation",
        "bad_catch_up",
        "bad_channel",
        "bad_cron",
        "bad_cursor",
        "bad_description",
        "bad_document",
        "bad_enabled",
        "bad_ends_at",
        "bad_engine",
        "bad_execution_mode",
        "bad_heartbeat",
        "bad_idempotency_key",
        "bad_if_match",
        "bad_input",
        "bad_interval",
        "bad_jitter_seconds",
        "bad_key",
        "bad_max_retry",
        "bad_max_runs",
        "bad_mcp_servers",
        "bad_message",
        "bad_model",
        "bad_name",
        "bad_overlap",
        "bad_page_size",
        "bad_parameter",
        "bad_policy",
        "bad_routine_limit",
        "bad_schedule",
        "bad_source",
        "bad_task_type",
        "bad_time",
        "bad_timeout_seconds",
        "bad_title",
        "bad_unified_session",
        "document_too_long",
        "empty_message",
        "empty_name",
        "empty_title",
        "internal_session",
        "malformed_body",
        "message_too_long",
        "never_fires",
        "no_workspace",
        "not_editable",
        "past_at",
        "reserved_key",
        "unknown_timezone",
    ),
    401: ("not_authenticated",),
    403: ("permission_denied",),
    404: ("not_found",),
    405: ("method_not_allowed",),
    406: ("not_acceptable",),
    409: (
        "conflict",
        "agent_exists",
        "duplicate_routine",
        "primary_session",
        "protected_job",
        "session_busy",
        "session_closed",
        "session_exists",
        "too_many_automations",
        "too_many_routines",
        "turn_ended",
    ),
    412: ("revision_conflict",),
    413: ("too_large",),
    415: ("unsupported_media_type",),
    422: ("idempotency_mismatch",),
    429: ("throttled",),
    500: ("server_error", "pooled_connection"),
}
STATUS = {code: status for status, codes in CODES.items() for code in codes}


def status_of(code: str) -> int:
    """The status of a domain error; one that the table does not name is bad input."""
    return STATUS.get(code, 400)


def code_of(status: int) -> str:
    """The code of a refusal that carries only a status."""
    return CODES.get(status, ("refused",))[0]
