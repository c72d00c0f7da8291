"""Connections to model providers, named in a model string such as ``work:gpt-5``, and the providers that they may have.

Nothing here imports a provider's package: that takes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import Final

from agent_core.addresses import Reach
from agent_core.exceptions import BROKEN_CODES, NOT_FOUND, ModelError
from agent_core.spending import Account, Amount, Budget, Price, Settle
from agent_core.telemetry.spans import Attributes

EFFORTS: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")  # of reasoning
LARGEST_TEMPERATURE: Final = 2.0
MOST_TOKENS: Final = 1_000_000  # of one reply


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """A kind of provider. ``base_url``: its own address; empty: a connection must give one.

    ``package`` is the module that it needs, ``extra`` the extra of Rondo that installs it; empty: always there.
    ``traced`` and ``priced`` are its names in traces and in the price table, where they are not ours.
    """

    base_url: str = ""
    package: str = ""
    extra: str = ""
    traced: str = ""
    priced: str = ""

    @property
    def missing(self) -> str:
        """Why the provider cannot be used on this machine; empty if it can."""
        if not self.package or _is_installed(self.package):
            return ""
        return f"its package is not installed; it comes with the extra {self.extra!r} of Rondo"


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False


_OPENAI: Final = Provider(base_url="https://api.openai.com/v1", traced="openai", priced="openai")
# The providers that need a key and an address only.
PROVIDERS: Final[dict[str, Provider]] = {
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": Provider(base_url="https://api.anthropic.com", package="anthropic", extra="anthropic"),
    "google": Provider(
        base_url="https://generativelanguage.googleapis.com",
        package="google.genai",
        extra="google",
        traced="gcp.gemini",
    ),
    "azure": Provider(traced="azure.ai.openai"),
    "ollama": Provider(),
    "vllm": Provider(),
    "litellm": Provider(),
    "openrouter": Provider(base_url="https://openrouter.ai/api/v1"),
    "deepseek": Provider(base_url="https://api.deepseek.com"),
    "together": Provider(base_url="https://api.together.xyz/v1"),
    "fireworks": Provider(base_url="https://api.fireworks.ai/inference/v1"),
    "cerebras": Provider(base_url="https://api.cerebras.ai/v1"),
    "moonshotai": Provider(base_url="https://api.moonshot.ai/v1", traced="moonshot_ai"),
    "groq": Provider(base_url="https://api.groq.com/openai/v1"),  # by the API that it shares with OpenAI
    "mistral": Provider(
        base_url="https://api.mistral.ai", package="mistralai", extra="mistral", traced="mistral_ai"
    ),
}
# Prefixes of model strings that are configured by variables of the server's environment.
_OTHERS: Final[dict[str, Provider]] = {
    "azure-responses": Provider(traced="azure.ai.openai", priced="azure"),
    "bedrock": Provider(package="boto3", extra="bedrock", traced="aws.bedrock", priced="aws"),
    "bedrock-mantle": Provider(package="boto3", extra="bedrock"),
    "cohere": Provider(package="cohere", extra="cohere"),
    "google-cloud": Provider(package="google.genai", extra="google", traced="gcp.vertex_ai", priced="google"),
    "google-decisions": Provider(package="google.genai", extra="google"),
    "huggingface": Provider(package="huggingface_hub", extra="huggingface"),
    "sentence-transformers": Provider(package="sentence_transformers", extra="sentence-transformers"),
    "typesafe": Provider(package="typesafe", extra="typesafe"),
    "voyageai": Provider(package="voyageai", extra="voyageai"),
    "xai": Provider(package="xai_sdk", extra="xai", traced="x_ai", priced="x-ai"),
}
_PLAIN: Final = (  # the others that need no package
    *("alibaba", "crusoe", "elevenlabs", "gateway", "github", "github-copilot", "heroku", "meta", "nebius"),
    *("openai", "openai-chatgpt", "openai-codex", "openai-decisions", "ovhcloud", "sambanova", "snowflake"),
    *("system-one", "vercel", "zai"),
)
# No connection has such a name.
PREFIXES: Final[dict[str, Provider]] = dict.fromkeys(_PLAIN, Provider()) | _OTHERS | PROVIDERS
NOT_NAMES: Final = frozenset({*PREFIXES, "offline", "test", "server", "google-gla", "google-vertex"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """How to call a provider's models. ``models``: the allowed ones; empty: all.

    ``reach``: the addresses that may be connected to; None: any. ``fault``: why the connection cannot be used.
    ``error``: why its last call failed, as it was stored when the turn began, at ``failed_since``; without one,
    ``well_since`` is when it was changed or worked again. ``secret`` goes to the provider and nowhere else. ``prices``
    are its owner's, by model; ``*`` is for all others.
    """

    name: str
    id: int = 0
    provider: str = ""
    base_url: str = ""
    secret: str = field(default="", repr=False)
    models: tuple[str, ...] = ()
    requests_per_minute: int = 0
    reach: Reach | None = None
    fault: str = ""
    error: str = ""
    failed_since: datetime | None = field(default=None, compare=False)
    well_since: datetime | None = field(default=None, compare=False)
    prices: Mapping[str, Price] = field(default_factory=dict, compare=False)
    budget: Budget | None = field(default=None, compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no error, page or log may contain."""
        return (self.secret,) if self.secret else ()

    def refusal(self, model: str) -> str:
        """Why the connection may not call this model; empty if it may."""
        if self.fault:
            return self.fault
        if self.models and model not in self.models:
            return f"the connection {self.name!r} does not allow {model[:100]!r}; allowed: {', '.join(self.models)}"
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallSettings:
    """Settings of a model call. None, or an empty effort: the provider's default. ``images``: the model sees them."""

    temperature: float | None = None
    max_tokens: int | None = None
    reasoning: str = ""
    images: bool = True


DEFAULT: Final = CallSettings()


def prefix_of(model: str) -> str:
    """The part of a model string before its first colon; empty without one."""
    before, colon, _after = model.partition(":")
    return before if colon else ""


def says_of(connection: Connection, error: ModelError, model: str) -> bool:
    """Whether a failed call means that the connection is broken. A rejected request does not.

    Nor does an unknown model of the server's connection that its operator has not named: any user can make one up.
    """
    if error.code == NOT_FOUND and connection.reach is None and model not in connection.models:
        return False
    return error.code in BROKEN_CODES


REJECTED: Final = "The model provider rejected the request"
USED_UP: Final = "the account's quota or credit is used up"


def named_model(model: str) -> str:
    """The words by which an error names a model that its provider does not know."""
    return f"the model {model!r}"


def concerns(error: str, model: str) -> bool:
    """Whether a connection's stored error applies to this model. An error that names another model does not."""
    return named_model("")[:-1] not in error or named_model(model) in error


def connection_of(model: str, connections: Iterable[Connection]) -> tuple[Connection | None, str]:
    """Return the connection that a model string names, and the model's name there. None: it names no connection."""
    before, _, after = model.partition(":")
    found = next((each for each in connections if each.name == before), None)
    return found, after if found else model


@dataclass(kw_only=True, slots=True)
class ModelHooks:
    """Functions of the server that each model call of this process uses.

    ``admit`` counts a call of a connection, and returns the seconds until it is allowed, 0 if it is now. ``report`` is
    told when a connection has failed (the reason) or works again (empty). ``reserve`` is called before each call that a
    budget applies to, with the dearest that it can cost, and raises CapReached. ``silence`` returns the seconds that a
    provider may send nothing, ``context_tokens`` the most tokens of one request (0: no bound), ``reply_characters`` the
    most characters of one reply.
    """

    admit: Callable[[Connection], float] = lambda _connection: 0.0
    report: Callable[[Connection, str], None] = lambda _connection, _error: None
    reserve: Callable[[Account | None, tuple[Budget, ...], Amount], Settle] = lambda *_: lambda _: None
    silence: Callable[[], float] = lambda: 120.0
    context_tokens: Callable[[], int] = int
    reply_characters: Callable[[], int] = lambda: 400_000


hooks: Final = ModelHooks()

OWN: Final = "rondo"  # models that need no provider


def provider_and_name(model: str, connection: Connection | None) -> tuple[str, str]:
    """Return the provider, and the model's name there. A connection's own name is not part of it."""
    if connection is not None:
        return connection.provider, connection_of(model, [connection])[1]
    if (prefix := prefix_of(model)) in PREFIXES:
        return prefix, model.removeprefix(f"{prefix}:")
    return OWN, model


def model_attributes(model: str, connection: Connection | None) -> Attributes:
    """Return what traces say of the provider and the model."""
    provider, name = provider_and_name(model, connection)
    traced = PREFIXES.get(provider, Provider()).traced or provider or OWN
    return {"gen_ai.provider.name": traced, "gen_ai.request.model": name}
