"""Models of connections: the real clients against a real HTTP server that speaks each provider's wire."""

import logging
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_core import connections
from agent_core.addresses import Reach
from agent_core.connections import NOT_NAMES, PREFIXES, PROVIDERS, CallSettings, Connection
from agent_core.policy import TurnPolicy
from agent_core.turn.control import TurnControl
from agent_core.types import Ending, Image, TurnEventType
from config.logs import CLIENTS, logging_config
from tests.agent_core.fakes import QUICK, Ports, Run, assistant, drive, request, user
from tests.agent_core.llm.test_pydantic_ai import CRON
from tests.model_server import ModelServer

SECRET = "own-key-of-the-connection-4711"
KEYS = (
    *("OPENAI_API_KEY", "OPENAI_ORG_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY"),
    *("GEMINI_API_KEY", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "OPENROUTER_API_KEY"),
    *("OLLAMA_API_KEY", "VLLM_API_KEY"),
)
HEADERS = ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS")
ENVIRONMENT = dict.fromkeys(KEYS, "env-secret") | dict.fromkeys(HEADERS, "X-Env: env-secret")
LOCAL = Reach(hosts=frozenset({"127.0.0.1"}))


def work(server: ModelServer, provider: str = "openai-chat", **more: Any) -> Connection:
    root = server.base_url.removesuffix("/v1")
    paths = {"anthropic": root, "google": root, "mistral": root, "azure": f"{root}/openai/v1"}
    base_url = paths.get(provider, server.base_url)
    given: dict[str, Any] = {"name": "work", "base_url": base_url, "secret": SECRET, "id": 1} | more
    return Connection(provider=provider, **given)


def spare(base_url: str) -> Connection:
    """Another connection, which needs no key."""
    return Connection(name="spare", provider="ollama", base_url=base_url)


def waits(run: Run) -> list[float]:
    """How long a turn waited before each new try."""
    return [each.content["wait_seconds"] for each in run.events if each.type == "status"]


def ask(
    message: str, *given: Connection, model: str = "work:m", ports: Ports | None = None, **more: Any
) -> Run:
    return drive(request(message, model=model, connections=given, **more), ports)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("secret", [SECRET, pytest.param("", marks=pytest.mark.full)])
def test_each_provider_answers_and_is_sent_nothing_of_the_environment(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, provider: str, secret: str
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    known = work(server, provider, secret=secret, reach=LOCAL)
    history = (user("my favourite colour is blue"), assistant("Noted."))
    name = "work:openai/m" if provider == "openrouter" else "work:m"
    run = ask("what is my favourite colour?", known, model=name, history=history, tools=(CRON,))
    assert run.result.reply == "Your favourite colour is blue. (offline model)", run.result
    assert run.result.model == name
    [received] = server.requests
    sent = f"{received.path} {received.headers}"
    assert "env-secret" not in sent
    assert (SECRET in sent) is bool(secret)
    assert SECRET not in received.path


@pytest.mark.parametrize("provider", ["anthropic", "google", "openai-chat"])
def test_reasoning_is_streamed_beside_the_answer(server: ModelServer, provider: str) -> None:
    run = ask("[[think:let me see]][[reply:blue]] colour?", work(server, provider))
    thoughts = [each.content for each in run.events if each.type is TurnEventType.LLM_THOUGHT]
    assert "".join(each["text"] for each in thoughts) == "let me see"
    assert {(each["step"], each["try"]) for each in thoughts} == {(1, 1)}
    assert run.texts() == ["blue"]


@pytest.mark.parametrize("provider", ["anthropic", "google", "openai-chat"])
def test_images_reach_a_model_that_sees(server: ModelServer, provider: str) -> None:
    seen = Image(media_type="image/png", content=b"\x89PNG\r\n\x1a\nnew")
    earlier = Image(media_type="image/jpeg", content=b"\xff\xd8\xffold")
    history = (replace(user("a photo"), images=(earlier,)), assistant("Nice."))
    known = work(server, provider)
    assert ask("[[reply:A dog.]] what is it?", known, history=history, images=(seen,)).result.reply
    shown = str(server.requests[0].body).replace("_", "/")  # Google's base64 is that of URLs
    for image in (seen, earlier):
        assert b64encode(image.content).decode() in shown
    ask("[[reply:Hm.]] what?", known, history=history, settings=CallSettings(images=False))
    assert b64encode(earlier.content).decode() not in str(server.requests[1].body)


def test_settings_reach_the_provider(server: ModelServer) -> None:
    settings = CallSettings(temperature=0.5, max_tokens=77)
    ask("hello", work(server, "anthropic"), settings=settings)
    ask("hello", work(server), settings=settings)
    known, settings = work(server, "openrouter"), CallSettings(reasoning="high")
    ask("hello", known, settings=settings, model="work:anthropic/claude-sonnet-4.5")
    first, second, third = (each.body for each in server.requests)
    assert (first["temperature"], first["max_tokens"]) == (0.5, 77)
    assert second["temperature"] == 0.5
    assert 77 in (second.get("max_tokens"), second.get("max_completion_tokens"))
    assert third["reasoning"]["effort"] == "high"


def test_only_an_allowed_model_is_called_letter_for_letter(server: ModelServer) -> None:
    known = work(server, models=("gpt-5",))
    for model in ("GPT-5", "gpt-5 ", " gpt-5", "other:gpt-5", "", "gpt-5-mini", "gpt-5\n"):
        result = ask("hello", known, model=f"work:{model}").result
        assert result.error_code == "model_not_configured", model
        assert "allowed: gpt-5" in (result.error_text or ""), model
    assert server.requests == []
    assert ask("hello", known, model="work:gpt-5").result.reply


def test_a_connection_whose_allowed_models_changed_is_checked_again(server: ModelServer) -> None:
    assert ask("hello", work(server)).result.reply
    assert ask("hello", work(server, models=("n",))).result.error_code == "model_not_configured"
    assert ask("hello", work(server, fault="the secret is lost")).result.error_text == "The secret is lost."


def test_a_users_connection_does_not_reach_a_private_address(server: ModelServer) -> None:
    run = ask("hello", work(server, reach=Reach()))
    assert run.result.error_text is not None
    assert "not a public address" in run.result.error_text
    assert server.requests == []


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "google"])
def test_a_redirect_is_not_followed(server: ModelServer, provider: str) -> None:
    with ModelServer() as other:
        server.failure_headers = {"Location": f"{other.base_url}/chat/completions"}
        server.fail_with(307, {})
        run = ask("hello", work(server, provider))
        assert run.result.ending is Ending.FAILED
        assert other.requests == []
    assert len(server.requests) == 1


ECHOES = (
    f"bad key {SECRET}",
    f"bad key {'-'.join(SECRET)}",
    f"see https://x.test/?key={SECRET.replace('-', '%2D')}",
    f"Authorization: Bearer {SECRET}",
)


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic", "google"])
@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("status", [401, 400, 500])
def test_a_provider_that_echoes_the_key_shows_it_to_nobody(
    server: ModelServer, caplog: pytest.LogCaptureFixture, provider: str, echo: str, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in CLIENTS:  # as in production, where LOG_LEVEL may be DEBUG
        caplog.set_level(logging_config("DEBUG", "text")["loggers"][name]["level"], name)
    server.failure_headers = {"X-Echo": SECRET}
    server.fail_with(status, {"error": {"message": echo, "type": echo, "code": echo, "status": echo}})
    run = ask("hello", work(server, provider))
    assert str(status) in (run.result.error_text or "")
    assert SECRET not in f"{run.result} {[each.content for each in run.events]} {caplog.text}"


PATIENT = TurnPolicy(max_attempts=2, backoff_seconds=0.0, timeout_seconds=20.0)


NO_WAITS = ("-1", "nan", "inf", "1e400", "soon", "", "0", "-5.5", "Wed, 21 Oct 2015 07:28:00 GMT", "0x10")


def test_the_wait_that_the_provider_asks_for_is_kept_unless_it_cannot_be_understood(
    server: ModelServer,
) -> None:
    for value, seconds in ({"1": 1.0} | dict.fromkeys(NO_WAITS, 0.0)).items():
        server.reset()
        server.failure_headers = {"Retry-After": value}
        run = ask("[[fail:429x1]] hello", work(server), policy=PATIENT)
        assert (run.result.ending, waits(run)) == (Ending.SUCCEEDED, [seconds]), value


def test_a_longer_wait_than_the_bound_fails_at_once_with_the_reason(server: ModelServer) -> None:
    for value in ("31", "3600", "9" * 30, "Wed, 21 Oct 2099 07:28:00 GMT"):
        server.reset()
        server.failure_headers = {"Retry-After": value}
        run = ask("[[fail:429]] hello", work(server), policy=TurnPolicy(timeout_seconds=60.0))
        assert len(server.requests) == 1, value
        assert "429" in (run.result.error_text or ""), value
        assert "asks to wait" in (run.result.error_text or ""), value


def test_a_cancel_ends_the_wait_for_the_provider(server: ModelServer) -> None:
    server.failure_headers = {"Retry-After": "25"}
    control = TurnControl()
    given = request("[[fail:429]] hello", model="work:m", connections=(work(server),))
    run = drive(given, control=control, on_event=lambda _event: control.cancel())
    assert run.result.ending is Ending.CANCELLED


@pytest.mark.parametrize("status", [503, 429, 402, 404])
def test_the_fallback_answers_when_the_model_cannot(server: ModelServer, status: int) -> None:
    with ModelServer() as other:
        server.fail_with(status, {"error": {"message": "down"}})
        further = work(other, "anthropic", name="spare", secret="")
        run = ask("hello", work(server), further, fallback_model="spare:n", policy=QUICK)
        assert run.result.ending is Ending.SUCCEEDED
        assert (run.result.model, len(other.requests)) == ("spare:n", 1)
        assert str(status) in run.result.fell_back
        tries = [each.content["try"] for each in run.events if each.type == "llm_delta"]
        asked_before = QUICK.max_attempts if status in (503, 429) else 1
        assert set(tries) == {asked_before + 1}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the seconds that a provider may send nothing: 0.4 at first."""

    def wait(seconds: float) -> None:
        monkeypatch.setattr(connections.hooks, "silence", lambda: seconds)

    wait(0.4)
    return wait


@pytest.mark.rule("10.0")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "provider",
    [
        *("openai-chat", "anthropic"),
        *(pytest.param(each, marks=pytest.mark.full) for each in ("openai-responses", "google", "mistral")),
    ],
)
def test_a_silent_provider_is_given_up_while_the_turn_has_time(server: ModelServer, provider: str) -> None:
    """Silent before the first piece: the fallback is asked. Silent after it: the call is tried again."""
    with ModelServer() as other:
        given = (work(server, provider), spare(other.base_url))
        policy = TurnPolicy(max_attempts=1, timeout_seconds=20.0)
        other.release("x")
        run = ask("[[hold:x]] hello", *given, fallback_model="spare:n", policy=policy)
        assert (run.result.model, len(other.requests)) == ("spare:n", 1)
        assert run.result.fell_back == "The model provider sent nothing for 0.4 s"
        run = ask("[[pause:x]] hello there you", given[0], policy=policy)
        assert (run.result.error_code, len(other.requests)) == ("model_unavailable", 1)
        assert "sent nothing for 0.4 s" in str(run.result.error_text)
        assert len(server.requests) == 2


@pytest.mark.rule("10.0")
def test_a_silent_provider_leaves_a_short_turn_time_for_the_fallback(
    server: ModelServer, impatient: Callable[[float], None]
) -> None:
    """Also with a bound on silence as long as the turn. A call after which nothing can follow has all that is left."""
    impatient(4.0)
    policy = TurnPolicy(max_attempts=1, timeout_seconds=4.0)
    with ModelServer() as other:
        other.release("x")
        given = (work(server), spare(other.base_url))
        run = ask("[[hold:x]] hello", *given, fallback_model="spare:n", policy=policy)
    assert (run.result.ending, run.result.model) == (Ending.SUCCEEDED, "spare:n")
    assert "sent nothing for 1." in run.result.fell_back
    assert ask("[[delay:2]] hello", work(server), policy=policy).result.ending is Ending.SUCCEEDED


GONE = Connection(name="gone", provider="ollama", base_url="http://127.0.0.1:9/v1")


def test_a_model_that_cannot_be_connected_to_falls_back(server: ModelServer) -> None:
    run = ask("hello", GONE, work(server), model="gone:x", fallback_model="work:m", policy=QUICK)
    assert run.result.model == "work:m"
    assert "connection refused" in run.result.fell_back
    run = ask("[[fail:503]] hi", work(server), GONE, fallback_model="gone:x", policy=QUICK)
    assert "503" in (run.result.error_text or "")
    assert "The fallback model failed too" in (run.result.error_text or "")


def test_no_fallback_after_output_or_a_refusal(server: ModelServer) -> None:
    with ModelServer() as other:
        for mark in ("[[fail:400]]", "[[fail:401]]", "[[drop]]"):
            given = (work(server), spare(other.base_url))
            run = ask(f"{mark} hello you there", *given, fallback_model="spare:n", policy=QUICK)
            assert (run.result.ending, run.result.model) == (Ending.FAILED, ""), mark
        assert other.requests == []


def test_an_outage_is_reported_and_so_is_its_end_but_no_rejected_request(
    server: ModelServer, reports: list[tuple[str, str]]
) -> None:
    ask("[[fail:400]] hello", work(server))
    ask("hello", work(server))
    assert reports == []
    ask("[[fail:503]] hello", work(server))
    [(name, error)] = reports
    assert (name, "503" in error) == ("work", True)
    ask("[[fail:503]] hello", work(server, error=error))
    assert len(reports) == 1
    ask("hello", work(server, error=error))
    assert reports[1:] == [("work", "")]


def test_an_exhausted_limit_waits_and_then_falls_back(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections.hooks, "admit", lambda _connection: 40.0)
    limited = work(server, requests_per_minute=2)
    run = ask("hello", limited, spare(server.base_url), fallback_model="spare:n")
    assert "allows 2 requests per minute" in run.result.fell_back
    assert run.result.model == "spare:n"


def test_the_table_of_providers_is_that_of_the_library(server: ModelServer) -> None:
    from pydantic_ai.providers import infer_provider_class

    from agent_core.llm.clients import model_of

    for name in PREFIXES:
        if name not in {"gateway", "groq"} and not PREFIXES[name].missing:
            infer_provider_class(name)
    for name, known in PROVIDERS.items():
        if known.base_url and not known.missing and name not in {"anthropic", "google", "mistral"}:
            made = str(model_of(work(server, name), "openai/m").base_url)
            assert made.rstrip("/") in (known.base_url, server.base_url), name
    assert "offline" in NOT_NAMES


def test_a_provider_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROVIDERS, "mistral", replace(PROVIDERS["mistral"], package="not_installed.here"))
    run = ask("hello", Connection(name="work", provider="mistral", secret=SECRET))
    assert run.result.error_code == "model_not_configured"
    assert "the extra 'mistral'" in (run.result.error_detail or "")
