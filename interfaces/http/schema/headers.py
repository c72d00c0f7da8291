"""The headers of every operation in the schema: the version, the id of the request and the rate limit."""

from __future__ import annotations

from typing import Any

from interfaces.doors import API_VERSION, VERSION_HEADER

_TEXT = {"type": "string"}
_EVERYWHERE: dict[str, Any] = {
    VERSION_HEADER: {"description": "The version of the API.", "schema": _TEXT},
    "X-Request-Id": {"description": "The id of the request, as the server's log has it.", "schema": _TEXT},
}
_COUNTED: dict[str, Any] = {
    "RateLimit-Policy": {"description": '`"requests";q=…;w=…`: so many in so many seconds.', "schema": _TEXT},
    "RateLimit": {"description": '`"requests";r=…;t=…`: so many are left now.', "schema": _TEXT},
}
_VERSION = {
    "in": "header",
    "name": VERSION_HEADER,
    "schema": {"type": "string", "enum": [API_VERSION]},
    "description": "The version that the client expects; 400 `unknown_version` from a server without it.",
}


def add_headers(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Name the headers with each answer; those of the rate limit where the request was surely counted."""
    result["components"]["headers"] = _EVERYWHERE | _COUNTED
    for methods in result["paths"].values():
        for operation in methods.values():
            operation["parameters"].append(_VERSION)
            for status, answer in operation["responses"].items():
                is_counted = status < "400" or status == "429"
                named = [*_EVERYWHERE, *(_COUNTED if is_counted else ())]
                more = {name: {"$ref": f"#/components/headers/{name}"} for name in named}
                answer["headers"] = answer.get("headers", {}) | more
    return result
