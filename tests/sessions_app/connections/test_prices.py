"""What turns cost: list prices of the provider behind a model's name, and what is said where none is known."""

from decimal import Decimal

import pytest

from agent_core.prices import price_of
from agent_core.spending import Price
from sessions_app.connections.edit import add_connection
from sessions_app.connections.prices import Cost, Used, costs_of
from tests.conftest import new_person

MILLION = 1_000_000


def test_a_token_that_is_written_costs_more_than_one_that_is_read() -> None:
    price = price_of("openai-chat", "gpt-4o")
    assert price is not None
    assert price == price_of("openai-responses", "gpt-4o")
    assert 0 < price.input < price.output
    assert price.of(MILLION, 0) == price.input * MILLION


def test_what_is_not_listed_has_no_price() -> None:
    for model in ("no-such-model", "", "x" * 200, "gpt-4o\x00"):
        assert price_of("openai-chat", model) is None, model
    for provider in ("", "ollama", "vllm", "nobody", "offline"):
        assert price_of(provider, "gpt-4o") is None, provider


@pytest.mark.django_db
def test_a_model_of_a_connection_has_the_price_of_its_provider() -> None:
    person, other = new_person("ada"), new_person("eve")
    given = {"provider": "openai-chat", "secret": "key-of-a-test"}
    add_connection(person.user, "work", given)
    listed = price_of("openai-chat", "gpt-4o")
    assert isinstance(listed, Price)

    asked = ((person, "work:gpt-4o"), (other, "work:gpt-4o"), (person, "offline"), (person, ""))
    known, foreign, free, nameless = costs_of(
        [Used(owner_id=each.user.pk, model=model, input_tokens=MILLION, output_tokens=0)]
        for each, model in asked
    )
    assert known == Cost(dollars=listed.of(MILLION, 0), is_partial=False)
    assert foreign.is_partial
    assert free == Cost(dollars=Decimal(0), is_partial=False)
    assert nameless.is_partial


def test_a_cost_says_what_is_known() -> None:
    for dollars, is_partial, words in (
        ("0", False, "$0.00"),
        ("0", True, "unknown"),
        ("0.01234", False, "$0.0123"),
        ("0.12", False, "$0.12"),
        ("1234.5", True, "at least $1,234.50"),
    ):
        assert str(Cost(dollars=Decimal(dollars), is_partial=is_partial)) == words
