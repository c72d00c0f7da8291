"""The repair of a corrupted HEARTBEAT.md by its agent (rule 6.6).

The agent is shown the broken block and its problem, and gives the tasks as they were meant. New ones become routines.
A repair loses nothing: every task that the broken block names must be given, and routines that are not given stay as
they are. It adds no routine that the block does not name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from automations.exceptions import AutomationsError
from automations.jobs.clock import database_now
from automations.jobs.removed_routines import normalised
from automations.routines.edit import agent_routines
from automations.routines.heartbeat_document import (
    NAME,
    HeartbeatDocument,
    corruption,
    ids_named,
    listed_routines,
)
from automations.routines.heartbeat_md import Parse, Task, parse_heartbeat_md, replace_broken_block
from automations.routines.reads import Routine, task_json
from sessions_app.agents.documents import put_document
from sessions_app.exceptions import RevisionConflict
from sessions_app.models import Agent, Document

_TITLE = re.compile(r'"title"\s*:\s*"((?:[^"\\\n]|\\.)*)"')


class BadRepair(AutomationsError):
    """Refused: the document is not corrupted, or the repair leaves it corrupted or loses or adds tasks."""

    code = "bad_repair"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """The result of a repair: the document's revision, and the ids of added and changed routines."""

    revision: int
    added: tuple[str, ...]
    changed: tuple[str, ...]


@transaction.atomic
def repair(agent_id: int, revision: int, tasks: Sequence[Any]) -> Repair:
    """Replace the broken block by these tasks. BadRepair, RevisionConflict, and the errors of writing the text."""
    HeartbeatDocument().lock(agent_id)
    broken = corruption(agent_id)
    if broken is None:
        raise BadRepair("HEARTBEAT.md is not corrupted: there is nothing to repair")
    if broken.revision != revision:
        raise RevisionConflict
    agent = Agent.objects.get(pk=agent_id)
    given = _understood(agent, _text(tasks, ()))
    _check_titles(agent, given, broken.blocks)
    content = Document.objects.values_list("content", flat=True).get(agent_id=agent_id, name=NAME)
    text = replace_broken_block(content, [*tasks, *(task_json(row) for row in _left_out(agent, given))])
    _understood(agent, text)
    before = _revisions(agent_id)
    document = put_document(agent_id, NAME, text, revision=revision)
    after = _revisions(agent_id)
    return Repair(
        revision=document.revision,
        added=tuple(each for each in after if each not in before),
        changed=tuple(each for each in after if each in before and after[each] != before[each]),
    )


def _text(tasks: Sequence[Any], more: Iterable[Mapping[str, Any]]) -> str:
    return f"```json\n{json.dumps({'version': 2, 'tasks': [*tasks, *more]}, ensure_ascii=False)}\n```"


def _understood(agent: Agent, text: str) -> tuple[Task, ...]:
    """The tasks of a text. BadRepair with the problem when it cannot be read."""
    parsed = parse_heartbeat_md(text, zone=agent.timezone, now=database_now())
    if parsed.parse is not Parse.OK:
        raise BadRepair(f"it still cannot be read after this repair: {parsed.problem or 'it has no block'}")
    return parsed.tasks


def _check_titles(agent: Agent, tasks: tuple[Task, ...], blocks: str) -> None:
    """BadRepair when a title of the broken block is missing, or a title is neither in it nor a routine's."""
    names = dict(agent_routines(agent.pk).values_list("pk", "name"))
    titles = [
        normalised(task.title or names.get(routine_id, ""))
        for routine_id, task in zip(ids_named(agent, tasks), tasks, strict=True)
    ]
    given = {title for title in titles if title}
    named = {normalised(_read(title)): _read(title) for title in _TITLE.findall(blocks)}
    # a title without its closing quotation mark was read with the text after it, so prefixes count
    lost = [title for each, title in named.items() if not any(map(each.startswith, given))]
    if lost:
        raise BadRepair(
            f"the broken block also names {lost[0]!r}: give every task, with enabled false if it is not wanted"
        )
    known = {normalised(name) for name in names.values()} | named.keys()
    within = normalised(blocks)
    said = {normalised(task.title): task.title for task in tasks if task.title}
    new = [title for each, title in said.items() if each not in known and not (each and each in within)]
    if new:
        raise BadRepair(f"the broken block does not name {new[0]!r}; a repair adds no other tasks")


def _read(title: str) -> str:
    try:
        return str(json.loads(f'"{title}"'))
    except ValueError:
        return title


def _left_out(agent: Agent, tasks: Sequence[Task]) -> list[Routine]:
    """The routines that the document lists and these tasks leave out: they stay as they are."""
    ids = set(ids_named(agent, tuple(tasks)))
    alike = {(normalised(task.title), task.schedule) for task in tasks if not task.id}
    rows = listed_routines(agent, ())
    return [row for row in rows if row.id not in ids and (normalised(row.title), row.schedule) not in alike]


def _revisions(agent_id: int) -> dict[str, int]:
    return dict(agent_routines(agent_id).values_list("pk", "revision"))
