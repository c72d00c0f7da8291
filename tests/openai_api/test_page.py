"""The sections on `/v1` and AG-UI in docs/protocols.md, followed: commands, example, configuration of LibreChat."""

from pathlib import Path
from typing import Any

import openai
import pytest
import yaml

from agent_core.offline.sentences import HELP
from tests.docs.pages import blocks, checkout, section
from tests.openai_api.conftest import Chatter
from tests.up import run

pytestmark = [pytest.mark.processes, pytest.mark.full]

OPENAI = section("protocols.md", "OpenAI-compatible API")
AG_UI = section("protocols.md", "AG-UI")


def test_the_commands_of_the_page_run(ada: Chatter, tmp_path: Path) -> None:
    folder = checkout(tmp_path, ada.site.url, ada.token)
    for text, said in ((OPENAI, "data: [DONE]"), (AG_UI, '"type":"RUN_FINISHED"')):
        [block] = blocks(text, "sh")
        done = run("bash", "-euo", "pipefail", "-c", block, cwd=folder, check=True)
        assert said in done.stdout
        assert HELP.split()[0] in done.stdout, "the answer to a greeting"


def test_librechats_configuration_keeps_each_chat_apart(ada: Chatter) -> None:
    [block] = blocks(OPENAI, "yaml")
    [shown] = yaml.safe_load(block)["endpoints"]["custom"]
    assert (shown["apiKey"], shown["models"]) == ("${RONDO_TOKEN}", {"default": ["demo"], "fetch": True})
    assert (shown["titleMethod"], shown["titleModel"]) == ("completion", "current_model")
    url = shown["baseURL"].replace("http://rondo.example:8000", ada.site.url)
    for chat in ("new", "one"):
        headers = {
            name: value.replace("{{LIBRECHAT_BODY_CONVERSATIONID}}", chat)
            for name, value in shown["headers"].items()
        }
        with openai.OpenAI(base_url=url, api_key=ada.token, default_headers=headers) as client:
            said: Any = [{"role": "user", "content": "[[reply:Hi]]hello"}]
            if chat == "one":
                said += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "and more"}]
            client.chat.completions.create(model=shown["models"]["default"][0], messages=said)
    [session] = ada.sessions()
    assert ada.said(session) == ["[[reply:Hi]]hello", "and more"]


def test_the_example_of_the_page_runs(ada: Chatter) -> None:
    [example] = blocks(OPENAI, "python")
    ran: dict[str, Any] = {"RONDO": ada.site.url, "TOKEN": ada.token}
    exec(compile(example, "protocols.md", "exec"), ran)
    ran["client"].close()
    assert "Lisbon" in ran["text"]
    [session] = ada.sessions()
    assert ada.said(session) == ["Plan a trip to Rome.", "And one to Lisbon."]
