"""Sizes of files and functions, and an import, which neither the linter nor the import contracts check."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APPS = ("config", "interfaces", "automations", "sessions_app", "agent_core")
MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 40


def _modules() -> list[Path]:
    found = [path for app in APPS for path in (ROOT / app).rglob("*.py")]
    return sorted(path for path in found if "migrations" not in path.parts)


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
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    large[f"{_name(path)}:{node.name}"] = lines
    assert large == {}


def test_agent_core_knows_no_database_driver() -> None:
    """The supervisor stands in the same contract as agent_core, and uses psycopg."""
    assert not [path for path in (ROOT / "agent_core").rglob("*.py") if "psycopg" in path.read_text()]
