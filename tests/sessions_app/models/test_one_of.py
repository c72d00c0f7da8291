"""The lookup of check constraints for known texts."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q

from sessions_app.models import Session, Turn
from tests.conftest import Person

pytestmark = pytest.mark.django_db


@pytest.fixture
def session(person: Person) -> Session:
    return person.session()  # type: ignore[no-any-return]


def test_the_database_and_a_form_refuse_an_unknown_text(session: Session) -> None:
    for wrong in ("paused", "", "null", "open,archived"):
        session.state = wrong
        with pytest.raises(ValidationError, match="session_state_known"):
            session.validate_constraints()
        with pytest.raises(IntegrityError, match="session_state_known"), transaction.atomic():
            session.save()
    session.state = "archived"
    session.validate_constraints()
    session.save()


def test_it_finds_rows(session: Session) -> None:
    kept = Turn.objects.create(session=session, kind="message", lane="turns", content="x")
    assert list(Turn.objects.filter(Q(state__one_of=["running", "queued"]))) == [kept]
    assert not Turn.objects.filter(Q(state__one_of=["null", "running"])).exists()


@pytest.mark.parametrize("wrong", [[], "queued", ["a b"], ['a"'], [""]])
def test_it_takes_single_words_only(wrong: object) -> None:
    with pytest.raises(ValueError, match="single words"):
        Turn.objects.filter(Q(state__one_of=wrong))
