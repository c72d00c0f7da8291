"""Each address answers with a policy for pages, and with a type that no browser takes for a page for all else."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from sessions_app.models import Turn
from tests.api.conftest import Site
from tests.browser import served
from tests.conftest import new_person
from tests.injection.world import World, hostile_world

__all__ = ["served"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.rule("10.5")]
PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>[^)]*\)")


def patterns(resolver: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Every address of the site as a pattern, with its name."""
    for each in resolver.url_patterns:
        whole = before + str(each.pattern).removeprefix("^").removesuffix("$").removesuffix("\\Z")
        if isinstance(each, URLResolver):
            yield from patterns(each, whole)
        elif isinstance(each, URLPattern):
            yield whole, each.name or ""


def addresses(world: World) -> Iterator[str]:
    """Every address, with the keys of what is there."""
    rows = world.rows[0]
    given = {
        "turn_id": Turn.objects.latest("pk").pk, "question_id": rows["consentquestion"].pk,
        "execution_id": rows["executionstate"].pk, "job_id": rows["cronjob"].pk,
        "message_id": rows["scheduledmessage"].pk, "run_id": rows["runrecord"].pk,
        "name": world.person.agent.name, "document": "USER.md", "kind": "automation",
        "key": rows["cronjob"].pk, "revision": 1, "app_label": "sessions_app",
    }  # fmt: skip
    given |= {f"{name}_id": rows[name].pk for name in ("session", "hook", "delivery")}
    keys = {f"{row._meta.app_label}_{row._meta.model_name}": row.pk for row in rows.values()}

    for pattern, name in patterns(get_resolver()):
        of_model = name.rpartition("_")[0]
        known = given | {"object_id": keys.get(of_model, "1"), "id": keys.get(of_model, "1")}

        def value(found: re.Match[str], known: dict[str, Any] = known) -> str:
            return str(known.get(found[1] or found[2], "1"))

        yield "/" + PARAMETER.sub(value, pattern).replace("\\", "")


def wrong_with(answer: Any) -> Iterator[str]:
    """What the headers of an answer lack."""
    headers = answer.headers
    if headers.get("x-content-type-options") != "nosniff":
        yield "no nosniff"
    kind = headers.get("content-type", "")
    if answer.status_code in {204, 301, 302, 303, 304} and not int(headers.get("content-length", "0")):
        return
    if not kind:
        yield "no type"
    policy = {part.split()[0]: part.split()[1:] for part in headers["content-security-policy"].split(";")}
    scripts = policy.get("script-src", policy["default-src"])
    if {"'unsafe-inline'", "data:", "*", "https:", "http:"} & {*scripts, *policy.get("object-src", ["*"])}:
        yield f"scripts from {scripts}"
    of_pages = kind.startswith("text/html") and not answer.url.path.startswith("/admin/")
    if of_pages and "'unsafe-eval'" in scripts:
        yield "eval"
    wanted = dict.fromkeys(("default-src", "base-uri", "frame-ancestors"), "'none'")
    wanted["form-action"] = "'self'"
    yield from (
        f"{name} is {policy.get(name)}" for name, value in wanted.items() if policy.get(name) != [value]
    )
    of_data = answer.url.path.startswith("/api/") and not answer.url.path.startswith("/api/docs/")
    if of_data and not kind.startswith(("application/", "text/event-stream", "text/plain")):
        yield f"data as {kind}"


@pytest.mark.full
def test_each_address_has_a_policy_and_a_type_that_is_kept(served: Site) -> None:
    world = hostile_world(new_person("ada"))
    type(world.person.user).objects.filter(pk=world.person.user.pk).update(is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(world.person.user)
    cookies = {"sessionid": client.cookies["sessionid"].value}
    faults, kinds = [], set()
    with httpx2.Client(base_url=served.url, cookies=cookies, timeout=30) as http:
        for address in sorted({*addresses(world), "/static/rondo/chat.js", "/no/<script>/such/"}):
            for accept in ("text/html", "application/json"):
                with http.stream("GET", address, headers={"Accept": accept}) as answer:
                    faults += [f"{address} ({accept}): {fault}" for fault in wrong_with(answer)]
                    kinds.add((answer.headers.get("content-type", "").partition(";")[0], answer.status_code))
    assert faults == []
    assert {("text/html", 200), ("application/json", 200), ("text/event-stream", 200)} <= kinds
