"""The docs name things that exist: code, files, links, targets, commands, tests, gauges, log lines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from config.command_line import PROCESSES
from tests.up import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
APPS = ("config", "automations", "sessions_app", "agent_core")
DJANGOS = {"migrate", "collectstatic", "createsuperuser", "makemigrations", "check", "help"}
LONGEST_PAGE = 95  # lines of architecture.md: it is one page
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_MACHINE = re.compile(r"(?<![\w.:/])/(?:home|root|work|Users|tmp/\w|mnt|opt|usr)(?=/|\b)")


def _text(page: Path) -> str:
    return page.read_text()


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _anchors(page: Path) -> set[str]:
    """Anchors as the usual renderers make them from headings."""
    headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_text(page)))
    return {heading.replace(" ", "-") for heading in headings}


def _python() -> list[Path]:
    return [path for app in APPS for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts]


def _defined() -> dict[str, set[str]]:
    """Every class and function of the code by name, each with the names in its body's first level."""
    found: dict[str, set[str]] = {}
    for path in _python():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, set()).update(_members(node))
            elif isinstance(node, ast.Assign):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                found.update({name: found.get(name, set()) for name in names})
    return found


def _members(node: ast.AST) -> set[str]:
    names = set()
    for child in getattr(node, "body", []):
        if isinstance(child, ast.Assign):
            names |= {target.id for target in child.targets if isinstance(target, ast.Name)}
        elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            names.add(child.target.id)
        elif isinstance(child, ast.FunctionDef):
            names.add(child.name)
    return names


def test_each_glossary_word_names_something_in_the_code() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `([\w.]+)` \|", _text(DOCS / "glossary.md"), re.MULTILINE)
    assert len(rows) > 30
    defined = _defined()
    unknown = []
    for _word, name in rows:
        owner, _, member = name.partition(".")
        if owner not in defined or (member and member not in defined[owner]):
            unknown.append(name)
    assert unknown == []


def test_the_glossary_has_each_word_once() -> None:
    words = re.findall(r"^\| ([a-z][^|]*?) \|", _text(DOCS / "glossary.md"), re.MULTILINE)
    assert sorted(set(words) - {"word"}) == sorted(word for word in words if word != "word")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_an_existing_page_and_heading(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_text(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _commands() -> set[str]:
    return {path.stem for path in ROOT.glob("*/management/commands/*.py") if path.stem != "__init__"}


def _shown_code(page: Path) -> list[str]:
    """Code spans, and the lines of code blocks without their comments."""
    text = _text(page)
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    spans = _CODE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return spans + [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_make_targets_and_commands_that_a_page_names_exist(page: Path) -> None:
    code = _shown_code(page)
    targets = {match[1] for line in code if (match := re.search(r"(?:^|\s)make ([a-z][a-z-]*)", line))}
    typed = r"(?:manage\.py|(?<![\w./-])rondo) ([a-z]\w*)\b(?!://)"  # no command: a server's name and address
    commands = {match[1] for line in code for match in re.finditer(typed, line)}
    assert targets - _targets() == set()
    assert commands - _commands() - DJANGOS - PROCESSES == set()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_no_page_names_a_place_on_somebodys_machine(page: Path) -> None:
    found = [line for line in _text(page).splitlines() if _MACHINE.search(line)]
    assert found == []


def _paths(text: str) -> set[str]:
    """What looks like a file or folder of the repository in a text."""
    tokens = re.findall(r"[\w./<>-]+", text)
    tops = {path.name for path in ROOT.iterdir()}
    return {
        token.rstrip(".")
        for token in tokens
        if "/" in token and token.split("/")[0] in tops and "<" not in token
    }


@pytest.mark.parametrize("name", ["architecture.md", "rules.md", "states.md", "operations.md"])
def test_each_path_that_the_page_names_exists(name: str) -> None:
    paths = _paths(_text(DOCS / name))
    assert paths or name == "operations.md"
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_the_architecture_is_one_page_and_names_every_app() -> None:
    text = _text(DOCS / "architecture.md")
    assert len(text.splitlines()) <= LONGEST_PAGE
    assert [app for app in APPS if f"`{app}/`" not in text] == []


def _parts(app: Path) -> set[str]:
    """The packages of an app, as `name/`, and its modules, as `name.py`."""
    packages = {f"{path.parent.name}/" for path in app.glob("*/__init__.py")}
    return packages | {path.name for path in app.glob("*.py") if path.name != "__init__.py"}


@pytest.mark.parametrize("app", APPS)
def test_the_architecture_names_each_package_and_module_of_an_app(app: str) -> None:
    [line] = [
        line for line in _text(DOCS / "architecture.md").splitlines() if line.startswith(f"- `{app}/`:")
    ]
    named = set(_CODE.findall(line.partition(":")[2]))
    parts = _parts(ROOT / app)
    assert len(parts) > 10
    assert parts - named == set()
    assert {name for name in named if re.fullmatch(r"\w+(?:/|\.py)", name)} - parts == set()


def test_variables_that_pages_name_are_in_the_table() -> None:
    known = set(re.findall(r"^\| `([A-Z_]+)` \|", _text(DOCS / "configuration.md"), re.MULTILINE))
    for name in ("architecture.md", "operations.md", "glossary.md"):
        spans = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", _text(DOCS / name)))
        ours = {span for span in spans if not span.endswith("_ARROWS") and not span.startswith("OTEL_")}
        assert ours - known == set(), name


def test_operations_gauges_checks_and_log_lines_match_the_code() -> None:
    page = _text(DOCS / "operations.md")
    looked_at = (ROOT / "config" / "operations" / "checks.py").read_text()
    named = ("operations/metrics.py", "operations/counters.py", "http/measure.py")
    code = "\n".join((ROOT / "config" / name).read_text() for name in named)
    counted = set(re.findall(r'\bCounter(?:MetricFamily)?\(\s*"(rondo_\w+)"', code))
    gauges = set(re.findall(r'"(rondo_\w+)"', code)) - counted
    counters = {f"rondo_{name}_total" for name in re.findall(r'^    "(\w+)": "', code, re.MULTILINE)}
    counters |= {f"{name}_total" for name in counted}
    assert len(counters) > 5
    assert set(re.findall(r"^\| `(rondo_\w+)` \|", page, re.MULTILINE)) == gauges | counters
    checks = re.findall(r'^    "(\w+)": [\w.]+,$', looked_at, re.MULTILINE)
    assert len(set(checks)) > 15
    assert [check for check in checks if f"`{check}`" not in page] == []
    code = "\n".join(path.read_text() for path in _python())
    [paragraph] = [each for each in page.split("\n\n") if each.startswith("Log lines")]
    assert [word for word in re.findall(r"`(\w+)`", paragraph) if f'"{word}"' not in code] == []


def test_nobody_is_told_to_install_another_project_of_this_name() -> None:
    """The package index holds a `rondo` that is not this one."""
    told = re.compile(
        r"(?:pip3?|pipx|uvx?|poetry|pdm|conda)\b[^\n`]*?\b(?:install|add|run|uvx)\b"
        r"(?:(?!\.whl)[^\n`])*?[\s'\"]rondo\b(?![/.])"  # after a wheel of ours, it is the command
        r"|\buvx\s+rondo\b|\brondo\[",
        re.IGNORECASE,
    )
    assert told.search("pip install 'rondo[notify]'")
    assert told.search("uv add rondo")
    assert told.search("pipx run rondo up")
    assert not told.search("pipx run --spec dist/rondo_server-0.1.0-py3-none-any.whl rondo up")
    assert not told.search("pip install apprise")
    files = [*PAGES, *_python(), ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "manage.py"]
    files += [path for path in (ROOT / "templates").rglob("*") if path.is_file()]
    assert [_name(file) for file in files if told.search(_text(file))] == []
