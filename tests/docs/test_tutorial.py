"""docs/tutorial.md and docs/how-to.md, followed: their commands are typed at a server that `manage.py up` started."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.bot_api import BotApi
from tests.browser import NEEDS_CHROMIUM, launch
from tests.docs.pages import page, section
from tests.mcp_servers import Handler, strange
from tests.up import ROOT, Up, clean_environ, run

# the start counts, on a busy machine
pytestmark = [pytest.mark.full, pytest.mark.processes, pytest.mark.timeout(300)]

START = "make up\n"
READY = re.compile(
    r"^Ready: http://\S+/enter/[\w-]{43}/\n  The link signs you in once, .*\n"
    r"  Your account is admin, password \w+ \(shown only now\)\.\n  Ctrl-C stops the server\.$",
    re.MULTILINE,
)
BETWEEN = "@@@ next block"
ENDING = """curl() {  # a stream ends after a moment
  case " $* " in
    *" -N "*) command curl --max-time 2 "$@" || test $? = 28 ;;
    *) command curl "$@" ;;
  esac
}"""
HOOK = 'HOOK=$(echo "$HOOK_MADE" | field id); HOOK_TOKEN=$(echo "$HOOK_MADE" | field token)'
SIGNED = ("webhook-id", "webhook-timestamp", "webhook-signature")  # headers that the receiver keeps
# typed before the block that contains the key: what has happened meanwhile
MEANWHILE = {
    "/redeliver/": """
DELIVERIES="$RONDO/api/sessions/$OUTSIDE/deliveries/?state=failed"
curl -sS -H "$AUTH" -H "$JSON" "$RONDO/api/sessions/$OUTSIDE/messages/" -d '{"content": "Hello"}'
until curl -sS -H "$AUTH" "$DELIVERIES" | first id 2> /dev/null; do sleep 0.2; done""",
    "CHAT=": """
curl -sS "$BOT_API/control/say" -d "{\\"chat\\": 4001, \\"text\\": \\"/start $CODE\\"}"
CHATS="$RONDO/api/agents/demo/telegram/chats/"
until curl -sS -H "$AUTH" "$CHATS" | first chat_id 2> /dev/null; do sleep 0.2; done""",
    "RUN=": """
RUNS="$RONDO/api/routines/$PACK/runs/"
until curl -sS -H "$AUTH" "$RUNS" | first turn 2> /dev/null | grep '[0-9]'; do sleep 0.2; done""",
    "WEBHOOK_ID": """
WEBHOOK_ID=$(cat "$RECEIVED/webhook-id") WEBHOOK_TIMESTAMP=$(cat "$RECEIVED/webhook-timestamp")
WEBHOOK_SIGNATURE=$(cat "$RECEIVED/webhook-signature") BODY=$(cat "$RECEIVED/body")""",
}
WORK = ("List what to pack for Lisbon.", "think for 60 seconds")  # so that a run can be cancelled
OUTSIDE = "https://chat.example/"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def keep(folder: Path, handler: Handler) -> None:
    """Receives webhooks: keeps the first request in files and answers 410, so that its delivery fails at once.

    Later ones are not kept: one that is sent again would replace the files one by one while they are read.
    """
    if not (folder / "body").exists():
        for name in SIGNED:
            (folder / name).write_text(handler.headers[name])
        (folder / "body").write_bytes(handler.body)
    handler.send(b"", 410)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    folder = Path(tempfile.mkdtemp(prefix="rondo-tutorial-"))
    with strange(partial(keep, folder)) as (receiver, _), BotApi() as bots:
        host = urlsplit(receiver).netloc
        environ = {"RONDO_MODEL": "offline", "RONDO_WEBHOOK_HOSTS": host, "RONDO_TELEGRAM_URL": bots.url}
        started = Up(folder=folder, environ=clean_environ() | environ)
        try:
            started.start()
            started.wait_ready()
            yield started
        finally:
            started.end()
            shutil.rmtree(folder)


def typed(up: Up, blocks: list[str]) -> list[str]:
    """What each block prints, in one shell. A command that fails, or that the API refuses, ends it."""
    (up.folder / ".curlrc").write_text("fail-with-body\n")
    bot_api = up.environ["RONDO_TELEGRAM_URL"]
    script = f"\necho '{BETWEEN}'\n".join(blocks)
    script = script.replace(".venv/bin/python", sys.executable).replace(".rondo/", f"{up.data}/")
    environ = os.environ | {"CURL_HOME": str(up.folder), "RECEIVED": str(up.folder), "BOT_API": bot_api}
    done = run("bash", "-euo", "pipefail", "-c", script, env=environ, timeout=200)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr}"
    return done.stdout.split(f"{BETWEEN}\n")


def told(blocks: list[tuple[str, str]]) -> tuple[list[str], dict[int, str]]:
    """The commands, and by the number of a command what the page shows below it."""
    commands: list[str] = []
    shown: dict[int, str] = {}
    for kind, text in blocks:
        if kind == "sh":
            commands.append(text)
        else:
            shown[len(commands) - 1] = text
    return commands, shown


def without_what_varies(text: str) -> str:
    """Ids and instants differ each time."""
    text = re.sub(r"\[\w{10}\]", "[…]", text)
    text = re.sub(r'"(id|turn|seq)": \d+', r'"\1": …', text)
    return re.sub(r"(\w+day, )?\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d[+-]\d\d:\d\d)?", "…", text)


def test_who_follows_the_tutorial_sees_what_it_shows(up: Up) -> None:
    blocks = BLOCK.findall(page("tutorial.md"))
    assert blocks[0] == ("sh", START)
    assert READY.search(blocks[1][1])
    assert READY.search(up.output)
    commands, shown = told(blocks[2:])
    assert len(shown) > 6
    for number, printed in enumerate(typed(up, commands)):
        seen = without_what_varies(printed)
        assert seen == without_what_varies(shown.get(number, "")), commands[number]


def with_what_happens(commands: list[str]) -> list[str]:
    """The commands of the how-to, with what its reader does or sees between them."""
    [make] = [number for number, command in enumerate(commands) if '/hooks/" -H' in command]
    commands = [*commands]
    commands[make] = f"HOOK_MADE=$({commands[make]})\n{HOOK}"
    meanwhile = [[text for key, text in MEANWHILE.items() if key in command] for command in commands]
    return ["\n".join([*before, command]) for before, command in zip(meanwhile, commands, strict=True)]


def test_each_request_of_the_how_to_is_accepted(up: Up) -> None:
    [variables, functions] = told(BLOCK.findall(section("tutorial.md", "Set up the terminal")))[0]
    commands, shown = told(BLOCK.findall(page("how-to.md")))
    assert len(commands) > 35
    receiver = f"http://{up.environ['RONDO_WEBHOOK_HOSTS']}/"
    blocks = [each.replace(OUTSIDE, receiver).replace(*WORK) for each in with_what_happens(commands)]
    printed = typed(up, [ENDING, variables, functions, *blocks])[3:]
    for number, text in shown.items():
        assert text.replace(OUTSIDE, receiver) in printed[number], commands[number]


@NEEDS_CHROMIUM
def test_who_follows_the_readme_and_then_the_tutorial_in_the_browser_sees_it_run(up: Up) -> None:
    """The link, the sentences of both, and the slots."""
    readme = (ROOT / "README.md").read_text().partition("## For programs")[0]
    [link] = re.findall(r"^Ready: (\S+)$", up.output, re.MULTILINE)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        window = browser.new_page()
        window.goto(link)
        window.get_by_role("button").click()
        for text in (readme, section("tutorial.md", "In the browser")):
            sentences = re.findall(r"^\d\. `([^`]+)`", text, re.MULTILINE)
            assert len(sentences) > 2
            window.get_by_role("button", name="New conversation").click()
            for number, sentence in enumerate(sentences):
                window.get_by_label("Message", exact=True).fill(sentence)
                window.keyboard.press("Enter")
                expect(window.locator(".entry.agent:not(.live) .text").nth(number)).to_be_visible()
            answer = window.locator(".entry.trigger + .entry.agent").first
            expect(answer).to_contain_text("blue", timeout=30_000)
            expect(window.locator(".made section").first).to_be_visible()
            window.get_by_role("link", name="Appointments").click()
            expect(window.locator(".strip a[aria-label^=ran]").first).to_be_visible(timeout=30_000)
        expect(window.get_by_text("I left out: except holidays.")).to_be_visible()
        browser.close()
