"""What people are told of a provider's error: status and reason, never a key or a piece of the prompt (rule 3.6)."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest

from agent_core.exceptions import FINAL_CODES, PASSING_CODES
from agent_core.turn.endings import ERROR_TEXTS
from agent_core.types import Ending
from tests.agent_core.conftest import KEY
from tests.agent_core.fakes import drive, request, user
from tests.agent_core.llm.test_connections import work
from tests.mcp_servers import Handler, strange
from tests.model_server import ModelServer

pytestmark = pytest.mark.rule("3.6")

NETWORK = "openai-chat:local-model"
REJECTED = "The model provider rejected the request"
OVERLOADED = "The model provider is overloaded"
FAILED = "The model provider failed"


def body(message: str = "Go away.", **more: Any) -> dict[str, Any]:
    return {
        "error": {"message": message, "type": "invalid_request_error", "code": None, "param": None} | more
    }


KEYLESS = body(f"Incorrect API key provided: {KEY}")
TOO_LONG = body("This model's maximum context length is 8192 tokens.", code="context_length_exceeded")
TOO_MANY = body("prompt is too long: 210000 tokens > 200000 maximum")
TOO_BIG = body("the request exceeds the available context size")
UNKNOWN = body("Unsupported parameter: 'max_tokens'.")
QUOTA = "the account's quota or credit is used up"
NO_MODEL = "the model 'local-model' does not exist"

FINAL: tuple[tuple[int, dict[str, Any], str, str], ...] = (
    (401, KEYLESS, "model_auth", "invalid API key"),
    (403, body(), "model_auth", "the API key has no access"),
    (402, body(), "model_quota", QUOTA),
    (429, body(code="insufficient_quota"), "model_quota", QUOTA),
    (404, body(code="model_not_found"), "model_not_found", NO_MODEL),
    (404, {"detail": "Not Found"}, "model_not_found", f"{NO_MODEL} there, or the base URL is wrong"),
    (400, TOO_LONG, "context_too_long", "context length exceeded"),
    (400, TOO_MANY, "context_too_long", "context length exceeded"),
    (400, TOO_BIG, "context_too_long", "context length exceeded"),
    *(
        (400, body(words), "context_too_long", "context length exceeded")
        for words in (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
            "Invalid request: Your request exceeded model token limit: 8192",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193.",
            "The number of tokens to keep from the initial prompt is greater than the context length",
            "Input is too long for requested model.",
            "Please reduce the length of the messages or completion.",
        )
    ),
    (413, body(), "context_too_long", "the request is too large"),
    (400, UNKNOWN, "model_refused", "bad request"),
    (422, {}, "model_refused", "unprocessable content"),
)
PASSING: tuple[tuple[int, dict[str, Any], str, str], ...] = (
    (429, body(), "rate_limited", f"{OVERLOADED} (429: too many requests)"),
    (408, body(), "model_unavailable", f"{FAILED} (408: request timeout)"),
    (502, body(), "model_unavailable", f"{FAILED} (502: bad gateway)"),
    (503, body(), "model_unavailable", f"{OVERLOADED} (503: service unavailable)"),
    (504, body(), "model_unavailable", f"{FAILED} (504: gateway timeout)"),
    (529, body(), "model_unavailable", f"{OVERLOADED} (529: overloaded)"),
    (500, body(f"Trace of {KEY}"), "model_unavailable", f"{FAILED} (500: internal server error)"),
)


def failed(server: ModelServer, status: int, told: dict[str, Any]) -> tuple[str | None, str | None, int]:
    """The code, the text and the number of requests of a turn whose model answers with this error."""
    server.reset()
    server.fail_with(status, told)
    result = drive(request("hello", model=NETWORK)).result
    assert result.ending is Ending.FAILED
    assert KEY not in str(result)
    assert str(status) in str(result.error_detail)
    return result.error_code, result.error_text, len(server.requests)


def test_each_error_names_its_status_and_its_cause_and_only_what_may_pass_is_tried_again(
    server: ModelServer,
) -> None:
    for status, told, code, cause in FINAL:
        assert failed(server, status, told) == (code, f"{REJECTED} ({status}: {cause}).", 1)
    for status, told, code, text in PASSING:
        assert failed(server, status, told) == (code, f"{text}; tried 3 times.", 3)


UNREADABLE = "The model provider sent an answer that cannot be read; tried 3 times."
MOVED = f"{REJECTED} (302: it redirects to another address; check the base URL)."
STREAM = "text/event-stream"
ANSWERS: tuple[tuple[str, Callable[[Handler], None], str], ...] = (
    ("page", lambda it: it.send(b"<html>Sign in</html>", kind="text/html"), "model_unavailable"),
    ("no json", lambda it: it.send(b"data: {no\n\n", kind=STREAM), "model_unavailable"),
    ("other shape", lambda it: it.send(b"data: [1, 2]\n\n", kind=STREAM), "model_unavailable"),
    ("no text", lambda it: it.send(b"data: \xff\n\n", kind=STREAM), "model_unavailable"),
    ("redirect", lambda it: it.send(b"", 302, Location="http://127.0.0.1:9/"), "model_refused"),
)


@pytest.mark.parametrize(("name", "answer", "code"), ANSWERS)
def test_an_answer_that_is_no_models_is_the_providers_fault(
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    answer: Callable[[Handler], None],
    code: str,
) -> None:
    with strange(answer) as (url, _asked):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        result = drive(request("hello", model=f"openai-chat:{url}")).result  # models are kept by name
    text = MOVED if name == "redirect" else UNREADABLE
    assert (result.ending, result.error_code, result.error_text) == (Ending.FAILED, code, text)


CREDITS = {"message": "Insufficient credits", "code": 402}
QUOTA_TEXT = f"{REJECTED} (402: {QUOTA})."


def google(code: int, message: str, status: str = "INVALID_ARGUMENT", **detail: Any) -> dict[str, Any]:
    about = {"status": status, "details": [detail] if detail else []}
    return {"error": {"code": code, "message": message} | about}


def mistral(message: Any, **more: Any) -> dict[str, Any]:
    return {"object": "error", "message": message, "param": None} | more


FORBIDDEN = [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Extra inputs are not permitted"}]
EXPIRED = google(400, "API key expired.")
PER_DAY = google(429, "Day.", "RESOURCE_EXHAUSTED", violations=[{"quotaId": "PerDay"}])
OWN: dict[
    str, tuple[tuple[int, Any, str, str], ...]
] = {  # by provider: status, body, code, what the owner reads
    "google": (
        (400, EXPIRED, "model_auth", "API key expired"),
        (400, [google(400, "No foo.")], "model_refused", "No foo"),
        (429, google(429, "Slow.", "RESOURCE_EXHAUSTED"), "rate_limited", "Slow"),
        (429, PER_DAY, "model_quota", "Day"),
    ),
    "mistral": (
        (401, {"detail": "Unauthorized"}, "model_auth", "Unauthorized"),
        (422, mistral({"detail": FORBIDDEN}), "model_refused", "Extra inputs are not permitted: body.x"),
        (400, mistral("Invalid model: x", type="invalid_model"), "model_not_found", "Invalid model: x"),
        (400, mistral("Prompt has 9 tokens", code="3051"), "context_too_long", "Prompt has 9 tokens"),
        (429, mistral("Capacity exceeded", code="3505"), "rate_limited", "Capacity exceeded"),
        (200, mistral("Insufficient credits", code="402"), "model_quota", "Insufficient credits"),
    ),
    "anthropic": ((200, {"error": {"type": "billing_error", "message": "Pay"}}, "model_quota", "Pay"),),
    "openai-chat": (
        (400, [EXPIRED], "model_auth", "API key expired"),  # as Google's address for OpenAI's clients has it
        (200, {"error": CREDITS}, "model_quota", "Insufficient credits"),
        (200, {"error": "Insufficient credits"}, "model_unavailable", "Insufficient credits"),
        (200, mistral("No model x", code=404), "model_not_found", "No model x"),
    ),
    "openrouter": ((200, {"error": CREDITS}, "model_quota", "Insufficient credits"),),
    "openai-responses": ((200, {"error": CREDITS}, "model_quota", "Insufficient credits"),),
    "groq": ((413, {"error": {"message": "Too large", "type": "tokens"}}, "context_too_long", "Too large"),),
}


@pytest.mark.parametrize("provider", OWN)
def test_each_providers_errors_have_their_code_and_its_words_are_the_owners(
    server: ModelServer, provider: str
) -> None:
    for status, told, code, said in OWN[provider]:
        server.reset()
        server.fail_with(status, told)
        model = "work:openai/m" if provider == "openrouter" else "work:m"
        result = drive(request("hello", model=model, connections=(work(server, provider),))).result
        assert (result.error_code, result.provider_message) == (code, said), result
        assert said not in str(result.error_text)
        assert len(server.requests) == (1 if code in FINAL_CODES else 3)


def at(*place: str | int) -> dict[str, Any]:
    """A fault of a validation at this place of the request's body."""
    return {"detail": [{"type": "value_error", "loc": ["body", *place], "msg": "Not valid"}]}


BLAMED: tuple[tuple[str, int, Any, bool], ...] = (  # provider, status, body, whether it blames a message
    ("openai-chat", 400, body("This model takes no temperature other than 1."), False),
    ("openai-chat", 400, body(param="temperature"), False),
    ("openai-chat", 400, body(param="prompt_cache_retention"), False),
    ("openai-chat", 400, body(param="messages[0].role", code="unsupported_value"), False),
    ("openai-chat", 422, {}, False),
    ("openai-chat", 400, body(param="messages.[3].content"), True),
    ("openai-chat", 400, body("Content Exists Risk"), True),
    ("openai-chat", 400, body(code="content_policy_violation"), True),
    ("openai-responses", 400, body(param="input[2].content[0].text"), True),
    ("openai-responses", 400, body(code="invalid_prompt"), True),
    ("anthropic", 400, body("max_tokens: must be at most 8192"), False),
    ("anthropic", 400, body("tools.0.input_schema: not valid"), False),
    ("anthropic", 400, body("messages.3.content.0.text: not valid"), True),
    ("google", 400, google(400, "Thinking level is not supported."), False),
    ("google", 400, google(400, "Invalid value at 'contents[1].parts[0]'"), True),
    ("mistral", 422, at("temperature"), False),
    ("mistral", 422, at("messages", 3, "content"), True),
)


@pytest.mark.rule("3.3")
@pytest.mark.parametrize(("provider", "status", "told", "blamed"), BLAMED)
def test_only_an_error_that_names_a_message_blames_it(
    server: ModelServer, provider: str, status: int, told: Any, blamed: bool
) -> None:
    server.fail_with(status, told)
    result = drive(request("hello", model="work:m", connections=(work(server, provider),))).result
    assert (result.error_code, result.refused) == ("model_refused", blamed)


def test_an_error_in_a_stream_is_the_error_that_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = f"data: {json.dumps({'error': CREDITS})}\n\n".encode()
    with strange(lambda it: it.send(sent, kind=STREAM)) as (url, asked):
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        result = drive(request("hello", model=f"openai-chat:{url}")).result
        assert (result.error_code, result.error_text, len(asked)) == ("model_quota", QUOTA_TEXT, 1)


VERIFY = "Access to this model needs a verified organization"


@pytest.mark.parametrize("message", ["hi", "a", "on", "Access", "needs a", "12", "是"])
def test_a_short_message_does_not_hide_the_reason(server: ModelServer, message: str) -> None:
    server.fail_with(400, body(VERIFY))
    result = drive(request(message, model=NETWORK)).result
    assert "verified organization" in result.provider_message
    assert result.error_text == f"{REJECTED} (400: bad request)."


PROMPT = "my safe opens with 4711 and a blue feather"


MESSAGES = (
    f"Bad request: {PROMPT}",
    "Bad request: {'content': 'my safe opens with 4711...'}",
    "Bad request: MY-SAFE-OPENS-WITH",
    "Bad request: You are a test.",
    "Bad request: m\u202ey s\x00afe\nopens wi",
    "Echo: 12345",  # the whole of an older message
    "Bad request: " + "x " * 5000 + PROMPT,
    "Bad key: " + " ".join(KEY),
    "Bad key: " + "".join(f"%{ord(each):02X}" for each in KEY),
    f"{KEY} sk-abcdef123456 https://me:pass@host/ Bearer abc.def gsk_0123456789 AbCdEf0123456789abcdef0123456789",
)
PROMPT_PIECES = ("safe", "4711", "feather", "12345", "a test")
KEY_PIECES = (KEY, "sk-abc", "pass@", "abc.def", "gsk_0", "abcdef")


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("field", ["message", "code", "type"])
def test_error_texts_contain_no_prompt_text_and_no_key(server: ModelServer, message: str, field: str) -> None:
    from agent_core.llm.errors import LONGEST_REASON

    server.fail_with(400, body(**{"message": "", field: message}))
    history = (user("12345"),)
    result = drive(request(PROMPT, model=NETWORK, history=history)).result
    assert result.error_text == f"{REJECTED} (400: bad request)."
    text = result.provider_message
    assert [piece for piece in PROMPT_PIECES + KEY_PIECES if piece.lower() in text.lower()] == []
    assert KEY not in unquote(text.replace(" ", ""))
    assert text.isprintable()
    assert len(text) <= LONGEST_REASON


def test_an_update_about_the_same_error_cuts_nothing_of_the_providers_words(server: ModelServer) -> None:
    said = "The model `gpt-9` does not exist or was retired"
    server.fail_with(404, body(said))
    first = drive(request("hello", model="openai-chat:gpt-9", connections=())).result
    again = drive(request(f"It failed: {first.error_text}", model="openai-chat:gpt-9", connections=())).result
    assert [first.provider_message, again.provider_message] == [said, said]


def test_model_error_codes_have_texts_and_are_final_or_temporary() -> None:
    assert set(ERROR_TEXTS) >= FINAL_CODES | PASSING_CODES
    assert not FINAL_CODES & PASSING_CODES


@pytest.mark.parametrize(
    ("status", "is_free"), [(503, True), (500, True), (429, True), (408, False), (504, False), (524, False)]
)
def test_a_status_in_place_of_an_answer_costs_nothing(status: int, *, is_free: bool) -> None:
    from pydantic_ai.exceptions import ModelHTTPError

    from agent_core.llm.errors import translated

    assert translated(ModelHTTPError(status, "m")).is_free is is_free
