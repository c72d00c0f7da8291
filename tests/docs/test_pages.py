"""The pages name things that exist: pages, headings, targets, commands, files, variables."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from config.command_line import PROCESSES
from tests.up import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
APPS = ("config", "interfaces", "automations", "sessions_app", "agent_core")
DJANGOS = {"migrate", "collectstatic", "createsuperuser", "makemigrations", "check", "help"}
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MACHINE = re.compile(r"(?<![\w.:/])/(?:home|root|work|Users|tmp/\w|mnt|opt|usr)(?=/|\b)")


def _found(wrong: Callable[[Path], Iterable[str]], pages: Iterable[Path] = PAGES) -> list[str]:
    """What is wrong on the pages, each with the name of its page."""
    return [f"{page.relative_to(ROOT)}: {each}" for page in pages for each in wrong(page)]


def _anchors(page: Path) -> set[str]:
    """Anchors as the usual renderers make them from headings."""
    headings = (re.sub(r"[^\w\- ]", "", each.lower()) for each in _HEADING.findall(page.read_text()))
    return {heading.replace(" ", "-") for heading in headings}


def test_links_lead_to_an_existing_page_and_heading() -> None:
    def is_broken(page: Path, link: str) -> bool:
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        return not target.exists() or bool(anchor and anchor not in _anchors(target))

    def broken(page: Path) -> list[str]:
        links = [link for link in _LINK.findall(page.read_text()) if not re.search(r"://|^mailto:", link)]
        return [link for link in links if is_broken(page, link)]

    assert _found(broken) == []


def _shown_code(page: Path) -> list[str]:
    """Code spans, and the lines of code blocks without their comments."""
    text = page.read_text()
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    spans = _CODE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return spans + [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


def test_make_targets_and_commands_that_a_page_names_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    files = ROOT.glob("*/management/commands/*.py")
    commands = {path.stem for path in files if path.stem != "__init__"} | DJANGOS | PROCESSES
    typed = r"(?:manage\.py|(?<![\w./-])rondo) ([a-z]\w*)\b(?!://)"  # no command: a server's name and address

    def unknown(page: Path) -> list[str]:
        code = "\n".join(_shown_code(page))
        named = set(re.findall(r"(?:^|[^\S\n])make ([a-z][a-z-]*)", code, re.MULTILINE))
        return sorted((named - targets) | (set(re.findall(typed, code)) - commands))

    assert _found(unknown) == []


def test_no_page_names_a_place_on_somebodys_machine() -> None:
    assert _found(lambda page: filter(_MACHINE.search, page.read_text().splitlines())) == []


def test_each_path_that_a_page_names_exists() -> None:
    tops = {path.name for path in ROOT.iterdir()}

    def missing(page: Path) -> list[str]:
        tokens = {token.rstrip(".") for token in re.findall(r"[\w./<>-]+", page.read_text())}
        paths = [each for each in tokens if "/" in each and each.split("/")[0] in tops and "<" not in each]
        return sorted(path for path in paths if not (ROOT / path).exists())

    pages = ("architecture.md", "glossary.md", "operations.md")
    assert _found(missing, [DOCS / name for name in pages]) == []


def test_the_names_of_the_glossary_are_names_of_the_code() -> None:
    files = (path for app in APPS for path in (ROOT / app).rglob("*.py"))
    code = {word for path in files for word in re.findall(r"\w+", path.read_text())}
    rows = re.findall(r"^\|[^|]*\|([^|]*)\|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    spans = (span for row in rows for span in re.findall(r"`([\w. ]+)`", row))
    named = {word for span in spans for word in re.findall(r"\w+", span)}
    assert len(named) > 50
    assert named - code == set()


def test_variables_that_pages_name_are_in_the_table() -> None:
    known = set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "configuration.md").read_text(), re.MULTILINE))

    def unknown(page: Path) -> set[str]:
        spans = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", page.read_text())) - known
        return {span for span in spans if not span.endswith("_ARROWS") and not span.startswith("OTEL_")}

    pages = ("architecture.md", "operations.md", "glossary.md")
    assert _found(unknown, [DOCS / name for name in pages]) == []


def test_nobody_is_told_to_install_another_project_of_this_name() -> None:
    """The package index holds a `rondo` that is not this one."""
    told = re.compile(
        r"(?:pip3?|pipx|uvx?|poetry|pdm|conda)\b[^\n`]*?\b(?:install|add|run|uvx)\b"
        r"(?:(?!\.whl)[^\n`])*?[\s'\"]rondo\b(?![/.])"  # after a wheel of ours, it is the command
        r"|\buvx\s+rondo\b|\brondo\[",
        re.IGNORECASE,
    )
    files = [*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "manage.py"]
    files += [path for app in APPS for path in (ROOT / app).rglob("*.py")]
    files += [path for path in (ROOT / "templates").rglob("*") if path.is_file()]
    assert [str(file) for file in files if told.search(file.read_text())] == []
