"""The corpus reaches every column with text of users or models, and no column is forgotten."""

from __future__ import annotations

import pytest
from django.apps import apps

from tests.conftest import new_person
from tests.injection.columns import LEGACY_COLUMNS, OTHERS, SHAPES, hostile_columns, listed, text_columns
from tests.injection.corpus import BLOCKS, LINES, LONGEST, RAN
from tests.injection.world import hostile_world

ROOM_FOR_ALL = 150  # characters: rows of the world together hold the whole corpus in a column of this length


def test_the_lists_of_columns_name_what_there_is_once() -> None:
    named = [*listed(OTHERS), *SHAPES, *LEGACY_COLUMNS]
    assert len(named) == len(set(named))
    assert set(named) <= set(text_columns())


@pytest.mark.django_db
def test_each_column_has_each_text_that_it_has_room_for() -> None:
    texts = hostile_world(new_person("ada")).texts
    for name in hostile_columns():
        label, _, column = name.rpartition(".")
        room = getattr(apps.get_model(label)._meta.get_field(column), "max_length", None)
        found = {line for line in LINES for text in texts[name] if line in text}
        if room is None or room >= ROOM_FOR_ALL:
            assert found == set(LINES), (name, set(LINES) - found)
        else:
            assert found, name


def test_each_text_of_the_corpus_can_be_found_in_a_page() -> None:
    assert all(RAN in text for text in (*LINES, *BLOCKS))
    assert LONGEST < 64
