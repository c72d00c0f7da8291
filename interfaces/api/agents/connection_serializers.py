"""Serializers of connections. The secret is only read from a request, never written into an answer."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from agent_core.connections import PROVIDERS
from interfaces.http.fields import AnyObject, Input, Items, Output, Text
from sessions_app.connections.edit import LONGEST_SECRET, LONGEST_URL, MOST_MODELS
from sessions_app.models import Connection

PROVIDER = f"One of {', '.join(f'`{name}`' for name in PROVIDERS)}; some need an extra of Rondo."
BASE_URL = "Empty: the provider's own address. Null for a connection of the server."
MODELS = "Names of the models that may be used; empty: all."
LIMITS = "`requests_per_minute` of all agents together; 0: no limit."


class ConnectionChanges(Input):
    example = {"models": ["gpt-5", "gpt-5-mini"], "limits": {"requests_per_minute": 60}}
    provider = Text(required=False, help_text=PROVIDER)
    base_url = Text(required=False, allow_blank=True, max_length=LONGEST_URL, help_text=BASE_URL)
    secret = Text(
        required=False,
        allow_blank=True,
        max_length=LONGEST_SECRET,
        help_text="The API key. It is stored encrypted and never shown; empty removes it.",
    )
    models = Items(child=Text(), required=False, max_length=MOST_MODELS, help_text=MODELS)
    limits = AnyObject(required=False, help_text=LIMITS)


class NewConnection(ConnectionChanges):
    example = {"name": "work", "provider": "openai-chat", "secret": "the-api-key", "models": ["gpt-5"]}
    name = Text(max_length=40, help_text="Agents name its models as `<name>:<model>`.")
    provider = Text(help_text=PROVIDER)


class LimitsOut(Output):
    requests_per_minute = serializers.IntegerField()


class ConnectionOut(Output):
    name = serializers.CharField()
    owner = serializers.SerializerMethodField(
        help_text="`you`, or `server`: all users may use it and nobody changes it here."
    )
    provider = serializers.CharField()
    base_url = serializers.SerializerMethodField(help_text=BASE_URL)
    models = serializers.ListField(child=serializers.CharField(), source="allowed_models", help_text=MODELS)
    limits = LimitsOut(source="*", help_text=LIMITS)
    has_secret = serializers.SerializerMethodField()
    last_error = serializers.CharField(
        help_text="Why its last call failed; empty when it succeeded or there was none."
    )
    state_since = serializers.DateTimeField(
        allow_null=True, help_text="When its calls began to succeed, or to fail."
    )
    created_at = serializers.DateTimeField()
    revision = serializers.IntegerField()

    def get_owner(self, row: Connection) -> str:
        return "server" if row.owner_id is None else "you"

    def get_base_url(self, row: Connection) -> str | None:
        return None if row.owner_id is None else row.base_url

    def get_has_secret(self, row: Connection) -> bool:
        return bool(row.secret_ciphertext)


class ConnectionTestIn(Input):
    example = {"model": "gpt-5"}
    model = Text(required=False, help_text="The first allowed model when not given.")


class ConnectionTestOut(Output):
    ok = serializers.SerializerMethodField()
    model = serializers.CharField()
    error = serializers.CharField(help_text="The provider's status and reason; empty when the model replied.")
    milliseconds = serializers.IntegerField()

    def get_ok(self, tested: Any) -> bool:
        return not tested.error
