"""The queries of a file of tests/data/, each by the comment before it."""

import re
from pathlib import Path


def queries(name: str) -> dict[str, str]:
    """What each query of the file `name`.sql would show, and the query."""
    text = (Path(__file__).parent / "data" / f"{name}.sql").read_text()
    found = dict(re.findall(r"^-- ([^\n]+)\n(.+?);$", text, re.DOTALL | re.MULTILINE))
    assert len(found) == text.count("\n-- "), "each comment begins a query"
    return found
