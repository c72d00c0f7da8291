"""A conversation of the person with an agent, and an automation of it."""

import pytest

from automations.models import CronJob
from sessions_app.models import Session
from tests.automations.jobs.made import new
from tests.conftest import Person


@pytest.fixture
def session(person: Person) -> Session:
    """A new conversation."""
    return person.session()  # type: ignore[no-any-return]


@pytest.fixture
def job(session: Session) -> CronJob:
    """One that is due daily."""
    return new(session)
