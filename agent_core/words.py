"""What people say in few words: yes and no, try again, clear. Deployments may add to the table.

Latin words match as words, so that "investigate" is not "gate"; Chinese ones by occurrence.
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
    # a whole message
    "clear": {
        *("/clear", "清空", "清除", "清空对话", "清除对话", "清空会话", "清除会话", "清空聊天", "清除聊天"),
        *("清空上下文", "清除上下文", "清空记录", "清除记录", "清空聊天记录", "清除聊天记录"),
    },
    # how a message begins that asks how things stand, or wants them changed. Not "please", "what", "how" and "when":
    # a reply may begin so, too, and then belongs to what was asked
    "request": {
        *(
            "list",
            "show",
            "which",
            "what are",
            "what is on",
            "how many",
            "are there",
            "is there",
            "do i",
            "do you",
        ),
        *("please list", "please show", "check"),
        *("create", "add", "set up", "schedule", "delete", "remove", "cancel", "pause", "resume", "change"),
        *("update", "edit", "disable", "enable", "stop", "can you", "could you"),
        *("列出", "显示", "查看", "查询", "看看", "有哪些", "有什么", "哪些", "什么", "多少"),
        *("创建", "新建", "添加", "删除", "移除", "取消", "暂停", "修改", "更新", "设置"),
    },
}


_AROUND: Final = " .,!?;:~\"'()[]" + "\u3002\uff0c\u3001\u2026"  # NFKC makes the other wide ones narrow


def add(kind: str, words: Iterable[str]) -> None:
    """Add words of a kind: yes, no, retry, clear or request. KeyError for another kind."""
    _TABLE[kind] |= {plain(word) for word in words}


def is_whole(kind: str, text: str) -> bool:
    """Whether the message says nothing but such a word."""
    return plain(text) in _TABLE[kind]


def begins(kind: str, text: str) -> bool:
    """Whether the message begins with such a word."""
    said = plain(text)
    return any(_begins(said, word) for word in _TABLE[kind])


def holds(text: str, words: Iterable[str]) -> bool:
    """Whether any of these words stands in the text."""
    said = plain(text)
    return any(_stands(said, plain(word)) for word in words)


def plain(text: str) -> str:
    """The text in lower case and one width, without what stands around its words."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(folded.split()).strip(_AROUND)


def _begins(said: str, word: str) -> bool:
    if not said.startswith(word):
        return False
    following = said[len(word) : len(word) + 1]
    return not _is_latin(word) or not (following.isascii() and following.isalnum())


def _stands(said: str, word: str) -> bool:
    if not _is_latin(word):
        return word in said
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", said, re.ASCII) is not None


def _is_latin(word: str) -> bool:
    return word.isascii()
