"""The section on nanobot in docs/automations.md, followed: commands print what it shows, its link shows the jobs."""

import re
import shlex

import pytest
from django.core.management import call_command
from django.test import Client

from automations.models import CronJob
from tests.conftest import new_person
from tests.docs.pages import section
from tests.up import ROOT

PAGE = section("automations.md", "From nanobot")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
STORE = "~/.nanobot/workspace/cron/jobs.json"


def without_what_varies(text: str) -> list[str]:
    """The lines, without instants and the new id of the dream."""
    text = re.sub(r"next run \S+?(?=[, ]|$)", "next run …", text, flags=re.MULTILINE)
    return re.sub(r"taken over, as \w+", "taken over, as …", text).splitlines()


@pytest.mark.django_db(transaction=True)
def test_who_follows_the_page_imports_what_it_shows(
    admin_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    person = new_person("ada", dreams=True)
    [look], [take] = (block.splitlines() for kind, block in BLOCKS if kind == "sh")
    sample = str(ROOT / "tests" / "data" / "nanobot_jobs.json")

    def typed(command: str) -> str:
        _python, _manage, *arguments = shlex.split(command.replace(STORE, sample))
        call_command(*arguments)
        return capsys.readouterr().out

    mine = CronJob.objects.create(
        agent=person.agent, name="my own", schedule_kind="at", at="2027-01-01T00:00Z"
    )
    assert typed(look).splitlines()[-1] == "A dry run: nothing was stored."
    assert not CronJob.objects.filter(source="import").exists()
    [shown] = [block for kind, block in BLOCKS if not kind]
    assert without_what_varies(typed(take)) == without_what_varies(shown)
    assert typed(take).splitlines()[-1].endswith("4 already there.")
    [address] = re.findall(r"`(/admin/automations/cronjob/\?\S+)`", PAGE)
    listed = admin_client.get(address).content.decode()
    assert "garden" in listed
    assert mine.name not in listed
