"""Recognizes short phrases of people, such as yes, no, try again and clear. Plugins may add to the table.

Latin phrases match whole words, so that "gate" does not match "investigate"; Chinese phrases match anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

_TABLE: Final[dict[str, set[str]]] = {
    # a whole message
    "yes": {
        *("yes", "y", "yeah", "yep", "ok", "okay", "sure", "confirm", "confirmed", "go ahead", "do it"),
        *("continue", "proceed", "是", "是的", "好", "好的", "行", "可以", "继续", "确认", "对", "同意"),
    },
    "no": {
        *("no", "n", "nope", "cancel", "stop", "don't", "do not", "never mind", "abort"),
        *("不", "不是", "不要", "不行", "否", "取消", "算了", "停"),
    },
    # how a message begins
    "retry": {"try again", "again", "retry", "continue", "再试", "重试", "再来", "继续"},
    # a whole message, whatever waits
    "command": {"/clear"},
    # a whole message that means the command, unless it answers a question
    "clear": {
        *("清空", "清除", "清空对话", "清除对话", "清空会话", "清除会话", "清空聊天", "清除聊天"),
        *("清空上下文", "清除上下文", "清空记录", "清除记录", "清空聊天记录", "清除聊天记录"),
    },
    # how a message begins that asks about the state of things or for a change. "please", "what", "how" and "when" are
    # missing, because a reply to a question may begin like this too
    "request": {
        *("list", "show", "which", "what are", "what is on", "how many", "are there", "is there"),
        *("do i", "do you", "please list", "please show", "check"),
        *("create", "add", "set up", "schedule", "delete", "remove", "cancel", "pause", "resume", "change"),
        *("update", "edit", "disable", "enable", "stop", "can you", "could you"),
        *("列出", "显示", "查看", "查询", "看看", "有哪些", "有什么", "哪些", "什么", "多少"),
        *("创建", "新建", "添加", "删除", "移除", "取消", "暂停", "修改", "更新", "设置"),
    },
}

# words that most questions have: that an answer repeats one of them means nothing
_FILLING: Final = frozenset(
    "the and for you your are was with that this which what when where who how shall should would could can may must"  # noqa: SIM905
    " will not all any one two both our his her their them they its from into about please want need have has had does"
    " did there here then than just only also but yes".split()
)
_FILLING_CHINESE: Final = frozenset(
    "的了吗呢吧啊我你您他她它是不还有个些哪那这要想把和或者请给在就都也会能可以什么怎么样为谁几多少"
)
_AROUND: Final = " .,!?;:~\"'()[]" + "\u3002\uff0c\u3001\u2026"  # NFKC converts other wide characters
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_GREEK_QUESTION_MARK: Final = "\u037e"  # NFKC converts it to a semicolon
_QUESTION_MARKS: Final = "?\u061f\u203d\ufe56\u2e2e\u00bf"  # NFKC converts wide and doubled ones


def add(kind: str, words: Iterable[str]) -> None:
    """Add phrases of a kind: yes, no, retry, command, clear or request. Raises KeyError for another kind."""
    _TABLE[kind] |= {normalized(word) for word in words}


def is_exactly(kind: str, text: str) -> bool:
    """Whether the message is a phrase of this kind and nothing else. A question such as "ok?" or ~~ok~~ is not."""
    return not _is_question(text) and not _is_struck(text) and normalized(text) in _TABLE[kind]


def shares_words(answer: str, question: str, besides: Iterable[str] = ()) -> bool:
    """Whether the answer uses significant words of the question, apart from `besides`."""
    return bool(_significant(answer, besides) & _significant(question, besides))


def _significant(text: str, besides: Iterable[str]) -> set[str]:
    """The significant words: Latin ones without a plural's s, and single Chinese characters."""
    said = normalized(text)
    for word in besides:
        known = normalized(word)
        said = _latin_word(known).sub(" ", said) if known.isascii() else said.replace(known, " ")
    latin = {found.removesuffix("s") for found in re.findall(r"[^\W_]{3,}", said) if not _HAN.search(found)}
    return (latin - _FILLING) | (set(_HAN.findall(said)) - _FILLING_CHINESE)


def _latin_word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.ASCII)


def is_chinese(text: str) -> bool:
    """Whether the text contains Chinese."""
    return _HAN.search(text) is not None


def _is_question(text: str) -> bool:
    folded = unicodedata.normalize("NFKC", text)
    return _GREEK_QUESTION_MARK in text or any(mark in folded for mark in _QUESTION_MARKS)


def _is_struck(text: str) -> bool:
    """Whether the text begins like one that chat services strike out."""
    return unicodedata.normalize("NFKC", text).lstrip(_AROUND.replace("~", "")).startswith("~")


def starts_with(kind: str, text: str) -> bool:
    """Whether the message begins with a phrase of this kind."""
    said = normalized(text)
    return any(_begins(said, word) for word in _TABLE[kind])


def contains_any(text: str, words: Iterable[str]) -> bool:
    """Whether the text contains any of these words."""
    said = normalized(text)
    return any(_contains(said, normalized(word)) for word in words)


def normalized(text: str) -> str:
    """The text in lower case and one width, without punctuation around it."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(folded.split()).strip(_AROUND)


def _begins(said: str, word: str) -> bool:
    if not said.startswith(word):
        return False
    following = said[len(word) : len(word) + 1]
    return not word.isascii() or not (following.isascii() and following.isalnum())


def _contains(said: str, word: str) -> bool:
    return _latin_word(word).search(said) is not None if word.isascii() else word in said
