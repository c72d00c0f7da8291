"""Querysets that are compiled once give what Django gives."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db.models import CharField, F, Value
from django.db.models.functions import Coalesce, Concat

from sessions_app.models import Session
from sessions_app.postgres.compiled import CompiledQuery, Parameter, is_any_of
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("prepared", [False, True])
def test_rows_have_fields_annotations_and_related_objects(person: Person, prepared: bool) -> None:
    made = person.session()
    Session.objects.filter(pk=made.pk).update(channel_meta={"topic": 1})
    query: CompiledQuery[Any] = CompiledQuery(
        lambda: (
            Session.objects.select_related("agent")
            .filter(owner_id=Parameter("owner"), pk=Parameter("session"))
            .annotate(
                agent_name=F("agent__name"), label=Concat("key", Value("%"), Parameter("end", CharField()))
            )
        ),
        prepared=prepared,
    )
    for end in ("one", "100 %s"):
        found = query.first(owner=made.owner_id, session=made.pk, end=end)
        assert found == made
        assert (found.agent, found.agent_name) == (person.agent, person.agent.name)
        assert (found.channel_meta, found.label) == ({"topic": 1}, f"{made.key}%{end}")
    assert query.first(owner=made.owner_id, session=uuid.uuid4(), end="") is None


def test_a_prepared_query_takes_a_parameter_twice_and_none(person: Person) -> None:
    made = person.session()
    query = CompiledQuery(
        lambda: Session.objects.filter(
            pk=Parameter("id"),
            agent__sessions=Parameter("id"),
            owner_id=Coalesce(Parameter("owner"), F("owner_id")),
        ).order_by(),
        prepared=True,
    )
    for _ in range(7):  # after five plans of their own PostgreSQL may keep a general one
        for owner in (None, made.owner_id):
            assert query.first(id=made.pk, owner=owner) == made
        assert query.all(id=made.pk, owner=0) == []


def test_fields_that_are_not_read_are_deferred(person: Person) -> None:
    made = person.session()
    query = CompiledQuery(lambda: Session.objects.only("pk").filter(pk=Parameter("session")))
    found = query.first(session=made.pk)
    assert found is not None
    assert "title" in found.get_deferred_fields()
    assert found.title == made.title


def test_rows_are_found_by_a_list(person: Person) -> None:
    ids = {person.session().pk for _ in range(3)}
    query = CompiledQuery(lambda: Session.objects.filter(is_any_of("pk", "ids")))
    assert {row.pk for row in query.all(ids=[*ids, uuid.uuid4()])} == ids
    assert query.all(ids=[]) == []
