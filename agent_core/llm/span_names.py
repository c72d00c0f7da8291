"""How spans name a model and its provider, by OpenTelemetry's conventions for generative AI."""

from __future__ import annotations

from typing import Final

from agent_core.connections import PREFIXES, Connection, connection_of, prefix_of
from agent_core.telemetry.spans import Attributes

OWN: Final = "rondo"  # models that need no provider
# where the name of the conventions is not ours
_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "azure-responses": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-cloud": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x_ai",
}


def model_attributes(model: str, connection: Connection | None) -> Attributes:
    """Return the provider, and the model's name there. A connection's own name is not part of it."""
    if connection is not None:
        provider, name = connection.provider, connection_of(model, [connection])[1]
    elif (prefix := prefix_of(model)) in PREFIXES:
        provider, name = prefix, model.removeprefix(f"{prefix}:")
    else:
        provider, name = OWN, model
    return {"gen_ai.provider.name": _PROVIDERS.get(provider, provider or OWN), "gen_ai.request.model": name}
