"""Text comparison: whether one text quotes another, and which sentences of a prompt come from its template."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

LEAST_SENTENCE = 20  # characters; shorter pieces may occur anywhere by chance


def contains_word(text: str | None, word: str) -> bool:
    """Whether the text contains the word."""
    return word in _words(text or "").split()


def quotes(text: str | None, said: Iterable[str]) -> bool:
    """Whether the text contains the first sentence of one of `said`, ignoring case and punctuation."""
    heard = f" {_words(text or '')} "
    return any(f" {sentence} " in heard for sentence in map(_first_sentence, said) if sentence)


def template_sentences(prompt: str, variables: Mapping[str, Any]) -> list[str]:
    """The sentences of a rendered prompt that do not depend on its variables."""
    pieces = prompt
    for value in sorted((str(value) for value in variables.values()), key=len, reverse=True):
        if value:
            pieces = pieces.replace(value, "\n")
    found = (sentence.strip() for sentence in re.split(r"[\n.:]", pieces))
    return [sentence for sentence in found if len(sentence) >= LEAST_SENTENCE]


def leaked(sentences: Iterable[str], messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which of the sentences occur in the messages, metadata included."""
    stored = json.dumps(list(messages), ensure_ascii=False)
    return [sentence for sentence in sentences if json.dumps(sentence, ensure_ascii=False)[1:-1] in stored]


def _first_sentence(text: str) -> str:
    return _words(re.split(r"[.!?\n]", text.strip(), maxsplit=1)[0])


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
