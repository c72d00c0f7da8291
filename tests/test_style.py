"""What the linter does not hold: sizes, links of the docs, and that nothing names where packages come from."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
APPS = ("config", "automations", "sessions_app", "agent_core")
MOST_FILE_LINES = 300
MOST_FUNCTION_LINES = 40
ONE_STATEMENT = {
    "automations/firing/insert_runs.py:_queue",
    "sessions_app/turns/claim.py:_claim_statement",
}  # SQL that is one thought
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def _modules() -> list[Path]:
    found = [path for app in APPS for path in (ROOT / app).rglob("*.py")]
    return sorted(path for path in found if "migrations" not in path.parts)


def _tracked() -> list[Path]:
    """Every file of the project. Not a git checkout: nothing to look at."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_files_stay_small() -> None:
    sizes = {_name(path): len(path.read_text().splitlines()) for path in _modules()}
    assert {name: size for name, size in sizes.items() if size > MOST_FILE_LINES} == {}


def test_functions_stay_small() -> None:
    large = {}
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    large[f"{_name(path)}:{node.name}"] = lines
    assert set(large) <= ONE_STATEMENT, large


def test_links_between_the_docs_lead_somewhere() -> None:
    pages = [path for path in _tracked() if path.suffix == ".md"]
    links = [(page, link) for page in pages for link in LINK.findall(page.read_text()) if "://" not in link]
    broken = [f"{_name(page)}: {link}" for page, link in links if not (page.parent / link).exists()]
    assert broken == []
