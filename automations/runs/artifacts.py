"""The links and files that an answer names."""

from __future__ import annotations

import re

MOST = 20  # of one answer
LONGEST = 500  # characters of one; longer ones are ignored
_LINK = re.compile(r"https?://[^\s<>\"'`|\\^{}]+", re.IGNORECASE)
_KINDS = (
    "pdf|csv|tsv|json|xml|ya?ml|md|txt|log|html?|docx?|xlsx?|pptx?|odt|ods|epub|png|jpe?g|gif|svg|webp|mp3|mp4|wav|zip|gz|tar|ics"
    "|py|sql|ipynb|parquet"
)
# after a separator, and not part of a longer name
_FILE = re.compile(
    rf"(?<![\w./@:-])(?:~?/|\.{{1,2}}/)?(?:[\w.-]+/)*[\w-][\w.-]*\.(?:{_KINDS})(?![\w/-])", re.IGNORECASE
)
_AFTER = ".,;:!?…。，；：！？*_~”’"  # noqa: RUF001 - what ends a sentence, no link


def artifacts_of(text: str) -> tuple[str, ...]:
    """The links and files in a text, in their order, each once."""
    found = [(match.start(), _link(match[0])) for match in _LINK.finditer(text)]
    without = _LINK.sub(lambda match: " " * len(match[0]), text)
    found += [(match.start(), match[0]) for match in _FILE.finditer(without)]
    names = dict.fromkeys(name for _, name in sorted(found) if len(name) <= LONGEST)
    return tuple(names)[:MOST]


def _link(text: str) -> str:
    """The link without the punctuation after it, and without a closing bracket that it does not open."""
    while True:
        shorter = text.rstrip(_AFTER)
        for opening, closing in ("()", "[]", "「」", "『』", "（）", "《》", "【】"):  # noqa: RUF001 - as people write
            if shorter.endswith(closing) and shorter.count(closing) > shorter.count(opening):
                shorter = shorter[:-1]
        if shorter == text:
            return text
        text = shorter
