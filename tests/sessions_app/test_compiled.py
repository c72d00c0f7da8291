"""Querysets that are compiled once give what Django gives."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db.models import CharField, F, Value
from django.db.models.functions import Concat

from sessions_app.models import Session
from sessions_app.postgres.compiled import CompiledQuery, Parameter, is_any_of
from tests.conftest import Person

pytestmark = pytest.mark.django_db


def test_rows_have_fields_annotations_and_related_objects(person: Person) -> None:
    made = person.session()
    Session.objects.filter(pk=made.pk).update(channel_meta={"topic": 1})
    query: CompiledQuery[Any] = CompiledQuery(
        lambda: (
            Session.objects.select_related("agent")
            .filter(owner_id=Parameter("owner"), pk=Parameter("session"))
            .annotate(
                agent_name=F("agent__name"), label=Concat("key", Value("%"), Parameter("end", CharField()))
            )
        )
    )
    for end in ("one", "100 %s"):
        found = query.first(owner=made.owner_id, session=made.pk, end=end)
        assert found == made
        assert (found.agent, found.agent_name) == (person.agent, person.agent.name)
        assert (found.channel_meta, found.label) == ({"topic": 1}, f"{made.key}%{end}")
    assert query.first(owner=made.owner_id, session=uuid.uuid4(), end="") is None


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
