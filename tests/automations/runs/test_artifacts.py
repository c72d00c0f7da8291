"""What an answer names as left behind: links and files."""

from __future__ import annotations

import pytest

from automations.runs.report import LONGEST, MOST, artifacts_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nothing was written.", ()),
        ("See https://example.org/a?b=c#d.", ("https://example.org/a?b=c#d",)),
        (
            "[the page](https://example.org/x_(y)) and (https://example.org/z)",
            ("https://example.org/x_(y)", "https://example.org/z"),
        ),
        (
            "**https://example.org/b**, \u300chttps://example.org/c\u300d\u3002",
            ("https://example.org/b", "https://example.org/c"),
        ),
        (
            "I wrote reports/2026-11.pdf and `./out/data.csv`; data.csv again, notes.md.",
            ("reports/2026-11.pdf", "./out/data.csv", "data.csv", "notes.md"),
        ),
        ("Twice: a.pdf, a.pdf", ("a.pdf",)),
        ("3.14 of e.g. v1.2 at example.org for ada@mail.txt.example", ()),
        ("https://example.org/file.pdf", ("https://example.org/file.pdf",)),
        (f"https://example.org/{'x' * LONGEST}", ()),
    ],
)
def test_links_and_files_are_found_once_in_order(text: str, found: tuple[str, ...]) -> None:
    assert artifacts_of(text) == found


def test_artifacts_are_bounded_and_long_texts_are_read_quickly() -> None:
    assert len(artifacts_of(" ".join(f"f{number}.txt" for number in range(100)))) == MOST
    for piece in ("a.", "a/", "(", "https://x/(", "../", "x.pdf/"):
        artifacts_of(piece * 100_000)
