"""Caps on the pages of an agent and of an automation, and what was used (rule 11.1)."""

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse

from agent_core.types import Usage
from automations.appointments.notices import attention
from automations.appointments.panel import appointments_of
from automations.jobs.edit import update_job
from automations.models import CronJob, RunRecord
from interfaces.web.appointments.toasts import planned
from interfaces.web.transcript import newest
from sessions_app.agents.edit import update_agent
from sessions_app.models import Agent
from sessions_app.spending.accounts import set_user_caps
from tests.automations.appointments.test_panel import add_runs_at
from tests.automations.firing.test_caps import due
from tests.automations.firing.test_fire_jobs import due_job
from tests.automations.web.test_addresses import signed_in
from tests.automations.web.test_stale_forms import as_sent
from tests.conftest import Person
from tests.inside import Inside
from tests.sessions_app.spending.test_calls import PLENTY, says

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rule("11.1")]


def section(person: Person) -> Any:
    answer = signed_in(person).get("/agents/demo/")
    return next(each for each in answer.context["sections"] if each["about"].anchor == "spending")["part"]


def test_caps_are_set_on_the_page_of_an_agent_and_bad_ones_are_kept_in_the_form(inside: Inside) -> None:
    client, address = signed_in(inside.person), "/agents/demo/spending/"
    form = {"run_usd": "0.1", "day_tokens": str(PLENTY), "day_usd": ""}
    form |= {"revision": inside.person.agent.revision}
    for bad in ({"day_tokens": "many"}, {"day_tokens": "1" * 14}, {"run_usd": "much"}, {"month_usd": "-1"}):
        assert client.post(address, form | bad).status_code == 400, bad
        assert Agent.objects.get().limits == {}, bad
    assert client.post(address, form).status_code == 303
    assert Agent.objects.get().limits == {"run": {"usd": "0.10"}, "day": {"tokens": PLENTY}}
    inside.model.answer_with(says("Hello.", Usage(input_tokens=70, output_tokens=30, requests=1)))
    inside.say(inside.person.session(), "hello")
    part = section(inside.person)
    assert [f"100 of {PLENTY:,} tokens" in row["words"] for row in part["caps"]] == [False, True, False]
    assert (part["total"].calls, part["total"].cost.unpriced_tokens) == (1, 100)


def test_what_is_spent_is_a_minimum_where_a_model_has_no_price(inside: Inside) -> None:
    Agent.objects.update(limits={"day": {"usd": "5.00"}})
    inside.model.answer_with(says("Hello.", Usage(input_tokens=70, output_tokens=30, requests=1)))
    inside.say(inside.person.session(), "hello")
    part = section(inside.person)
    assert "unknown" in part["total"].words
    assert part["caps"][1]["words"].startswith("At least $0.00 of $5.00 a day spent.")
    page = signed_in(inside.person).get("/agents/demo/").content.decode()
    assert '<div id="spending-warnings"><p class="note warning">' in page
    model = page.partition('<section id="model"')[2].partition(">")[0]
    assert "#spending-warnings" in model, "it is shown with the answer to the form of the model"


def test_what_a_cap_stops_is_stopped_in_the_chat_and_has_no_next_run_on_the_pages(inside: Inside) -> None:
    session = inside.person.session()
    due(inside, due_job(session, limits={"run": {"tokens": 5_000}}))
    assert [chip for entry in newest(inside.person.user, session.pk).entries for chip in entry.chips] == [
        "Stopped"
    ]
    job = CronJob.objects.get()
    assert "Next run" not in planned(job, "is saved.").text
    update_job(job.pk, {"limits": {"run": None}})
    assert "Next run" in planned(job, "is saved.").text


@pytest.mark.parametrize("of", ["agent", "automation", "user"])
def test_what_one_cap_stops_is_one_notice_that_leads_to_where_the_cap_stands(inside: Inside, of: str) -> None:
    session, few = inside.person.session(), {"day": {"tokens": 500}}
    if of == "agent":
        update_agent(inside.person.agent.pk, {"limits": few})
    elif of == "user":
        set_user_caps(inside.person.user.pk, few)
    jobs = [due_job(session, name=name, limits=few if of == "automation" else {}) for name in ("a", "b")]
    for job in jobs:
        due(inside, job)
    forms = [reverse("change-automation", args=[session.pk, job.pk]) for job in jobs]
    places = {"agent": ["/agents/demo/#spending"], "user": ["/account/#used"], "automation": forms}[of]
    notices, client = attention(inside.person.user), signed_in(inside.person)
    assert sum(1 + len(each.also) for each in notices) == len(jobs)
    assert len(notices) == len(places)
    links = [reverse("upcoming"), reverse("conversation", args=[session.pk])]
    links += [reverse("why", args=[session.pk, "automation", job.pk]) for job in jobs]
    for page in links:
        said = client.get(page).content.decode()
        assert any(f'href="{place}"' in said for place in places), page
        assert (f"/#{'spending'}" in said) == (of == "agent"), page


def test_while_a_cap_stops_a_job_its_older_failure_is_past_and_is_not_tried_again(inside: Inside) -> None:
    session = inside.person.session()
    job = due_job(session, limits={"run": {"tokens": 5_000}})
    refused, client = due(inside, job), signed_in(inside.person)
    failed = refused.scheduled_for - timedelta(days=1)
    cap = dict(refused.cap or {})
    add_runs_at(job, [failed], state="failed", reason="timeout", finished_at=failed)
    [card], [notice] = appointments_of(inside.person.user, session.pk), attention(inside.person.user)
    assert (card.is_stopped, card.trouble_text, card.codes[0]) == (True, "", "budget:automation")
    assert (notice.what, notice.run_id, notice.before) == ("stopped", "", card.before)
    assert len(card.before) == 1
    retry = reverse("retry-run", args=[session.pk, RunRecord.objects.get(reason="timeout").pk])
    pages = [reverse("why", args=[session.pk, "automation", job.pk]), reverse("upcoming")]
    pages.append(reverse("appointments", args=[session.pk]))
    assert [page for page in pages if retry in client.get(page).content.decode()] == []
    away = refused.scheduled_for + timedelta(hours=1)
    waits = {"state": "queued", "reason": "model_unavailable", "error": "Busy.", "not_before": away}
    add_runs_at(job, [away], attempt=2, finished_at=None, **waits)
    [card] = appointments_of(inside.person.user, session.pk)
    assert card.now.startswith("Stopped"), "its next attempt meets the cap, too"
    assert "next slot" not in card.before[0], "that one will be skipped"
    RunRecord.objects.filter(state="queued").delete()
    RunRecord.objects.filter(reason="timeout").update(reason="budget", cap=cap)
    refused.delete()
    update_job(job.pk, {"limits": {"run": None}})
    [card] = appointments_of(inside.person.user, session.pk)
    assert (card.is_failing, card.trouble_text, card.codes, len(card.before)) == (False, "", (), 1)
    assert attention(inside.person.user) == [], "the cap that it failed by is gone"


def test_caps_in_dollars_are_set_in_the_form_of_an_automation(inside: Inside) -> None:
    session = inside.person.session()
    job, client = due_job(session, limits={"day": {"tokens": 5}}), signed_in(inside.person)
    address = reverse("change-automation", args=[session.pk, job.pk])
    form = as_sent(client, address)
    assert client.post(address, form | {"usd_day": "much"}).status_code != 303
    assert CronJob.objects.get().limits == {"day": {"tokens": 5}}
    saved = client.post(address, form | {"usd_day": "0.50", "tokens_day": "5"})
    assert saved.status_code < 400, saved.context["form"].errors
    assert CronJob.objects.get().limits == {"day": {"tokens": 5, "usd": "0.50"}}


def test_an_account_shows_its_caps_and_what_all_agents_used(inside: Inside) -> None:
    set_user_caps(inside.person.user.pk, {"month": {"usd": "12.50"}})
    answer = signed_in(inside.person).get("/account/")
    assert "$12.50" in answer.content.decode()
    assert answer.context["used"].calls == 0
