"""Recognizes short phrases of people, such as yes, no, try again and clear. Plugins may add to the table.

Latin phrases match whole words, so that "gate" does not match "investigate"; Chinese phrases match anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from agent_core.text.formats import one_width

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
    "retry": {
        *("retry", "redo", "continue", "再试", "重试", "再来", "再做", "再跑", "再执行", "再运行", "再一次"),
        *("重来", "重做", "重新", "继续", "give it another try", "have another go", "have another try"),
        *(
            f"{verb}{more}"
            for verb in (
                "",
                *(f"{each} {what}" for each in ("try", "do", "run") for what in ("", "it ", "that ")),
            )
            for more in ("again", "once more", "once again", "one more time")
        ),
    },
    # a whole message, whatever waits
    "command": {"/clear"},
    # a whole message that means the command, unless it answers a question
    "clear": {
        *("清空", "清除", "清空对话", "清除对话", "清空会话", "清除会话", "清空聊天", "清除聊天"),
        *("清空上下文", "清除上下文", "清空记录", "清除记录", "清空聊天记录", "清除聊天记录"),
    },
    # how a request for the state of things begins. Questions such as "what … do I have" are told by their form
    "look": {
        *("list", "show", "check", "see", "let me see", "let me know", "give me", "tell me", "know"),
        *("列出", "列一下", "列下", "显示", "查看", "查询", "查一下", "查下"),
        *("看看", "看一下", "看下", "看我", "告诉我"),
    },
    # how a request for a change begins. "set" is missing, because a reply to a question may begin like this too
    "request": {
        *("create", "add", "set up", "schedule", "delete", "remove", "cancel", "pause", "resume", "change"),
        *("update", "edit", "disable", "enable", "stop", "rename", "move", "postpone", "reschedule"),
        *("turn on", "turn off", "switch on", "switch off", "set a", "set an", "make a", "wake me"),
        *("创建", "新建", "新增", "添加", "加个", "加一个", "建个", "建一个"),
        *("设个", "设一个", "定个", "定一个"),
        *("设置", "删", "移除", "取消", "暂停", "停掉", "关掉", "关闭", "启用", "修改", "更新"),
        *("改到", "改成", "改为"),
    },
}

_NAMES_TASK: Final = re.compile(r"\b(?:to|about|that|of)\b", re.ASCII)
# a request for an appointment, wherever it stands, as in "tomorrow at nine remind me"
_REMINDS: Final = re.compile(r"\bremind (?:me|us)\b(?! (?:of|what|who|where|why|how)\b)|提醒我", re.ASCII)
# what may come before the first word of a request
_LEADS: Final = (
    r"(?:(?:please|pls|hey|hi|well|so|and|but|then|now|first|also|just|kindly|actually|wait|sorry|hm+|by the way|btw"
    r"|let's|(?:could|can|would|will) you|i(?:'d like| would like| want| need)(?: you)? to|i wanna)\b"
    r"|我们|咱们|请|麻烦|帮我|给我|替我|我想|我要|你|您|能不能|能否|可不可以|可以|可否|能|先|那就|那|顺便|另外|现在|等等"
)
_LEAD: Final = re.compile(rf"{_LEADS})[ ,:\u3001]*", re.ASCII)
_ANSWERS: Final = r"(?:ok|okay|yes|no|sure)\b|好的|好|是的|嗯"
_ANSWER: Final = re.compile(_ANSWERS, re.ASCII)
_LEAD_OR_ANSWER: Final = re.compile(rf"{_LEADS}|{_ANSWERS})[ ,:\u3001]*", re.ASCII)
_LONGEST_BEGINNING: Final = 200  # characters
# the form of a question: "do I", "what … are there"; not "what the reminder says", "have my reminder at nine"
_INVERTED: Final = (
    r"(?:(?:do|does|did|has|have|had|can|could|will|would|should|may) (?:i|you|we|they|there)"
    r"|(?:is|are|am|was|were|has|does|did|will|can) (?:i|you|we|they|there|my|our|your|any))\b"
)
_ASKING: Final = re.compile(
    rf"{_INVERTED}|(?:(?:is|are|does|did|has|will) the|any|anything)\b.*\?"
    r"|(?:what|which|when|where|how|who|why)(?:"
    r"(?:'s|s| is| are| was| were| do| does| did| will| can) (?:i|you|we|they|there|my|our|your|the|any|on|next)\b"
    r"| (?:many|much|often)\b"
    r"|\b(?! (?:the|an?|i|you|we|they|he|she|it|my|our|your|his|her|their|this|that|about|if)\b)"
    rf"(?:.*\b{_INVERTED}|.*\?)|(?<=which)\b (?!the\b))"
    # "什么提醒都行" asks nothing
    r"|(?!.*(?:什么|哪.|几.).*[都也])(?:.*(?:哪些|哪个|什么|多少|几[个条点时]|怎么)|.*(?:吗|呢)\?*$)",
)
_SENTENCES: Final = re.compile(r"(?<=[!?;\n\u3002])|(?<=[.:])(?=\s)")
# "把…删除" is "删除…"
_MOVED: Final = re.compile(r"把.+?(?=删|取消|移除|暂停|停掉|关掉|关闭|更新|改|列出|显示)")

# words that most questions have: that an answer repeats one of them means nothing
_FILLING: Final = frozenset(
    "the and for you your are was with that this which what when where who how shall should would could can may must"  # noqa: SIM905
    " time many much often will not all any one two both our his her their them they its from into about please want"
    " need have has had does did there here then than just only also but yes".split()
)
_FILLING_CHINESE: Final = frozenset(
    "的了吗呢吧啊我你您他她它是不还有个些哪那这要想把和或者请给在就都也会能可以什么怎么样为谁几多少"
)
_AROUND: Final = " .,!?;:~\"'()[]" + "\u3002\uff0c\u3001\u2026"  # NFKC converts other wide characters
_HAN: Final = re.compile(r"[\u3400-\u9fff]")
_GREEK_QUESTION_MARK: Final = "\u037e"  # NFKC converts it to a semicolon
_QUESTION_MARKS: Final = "?\u061f\u203d\ufe56\u2e2e\u00bf"  # NFKC converts wide and doubled ones


def add(kind: str, words: Iterable[str]) -> None:
    """Add phrases of a kind: yes, no, retry, command, clear, look or request. Raises KeyError for another kind."""
    _TABLE[kind] |= {normalized(word) for word in words}


def is_exactly(kind: str, text: str) -> bool:
    """Whether the message is a phrase of this kind and nothing else. A question such as "ok?" or ~~ok~~ is not."""
    return not _is_question(text) and not _is_struck(text) and normalized(text) in _TABLE[kind]


def shares_words(answer: str, question: str, besides: Iterable[str] = ()) -> bool:
    """Whether the answer uses significant words of the question, apart from `besides`."""
    return bool(_significant(answer, besides) & _significant(question, besides))


def only_asks_for(text: str, names: Iterable[str]) -> bool:
    """Whether the text is a question of these names alone, as in "And my reminders?"."""
    return _is_question(text) and not _significant(text, names)


def is_label(question: str) -> bool:
    """Whether a question is the name of a text and no more, as in "Title?" or "Subject line?"."""
    words = normalized(question)
    return _FILLING.isdisjoint(words.split()) and _FILLING_CHINESE.isdisjoint(words)


def stated_words(text: str) -> list[frozenset[str]]:
    """Return the significant words of each sentence, without endings. Questions state nothing."""
    return [
        frozenset(re.sub("(?:ing|ed)$", "", word) for word in _significant(sentence, ()))
        for sentence in sentences(text)
        if not (_is_question(sentence) or asks(sentence))
    ]


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
    folded = one_width(text)
    return _GREEK_QUESTION_MARK in text or any(mark in folded for mark in _QUESTION_MARKS)


def _is_struck(text: str) -> bool:
    """Whether the text begins like one that chat services strike out."""
    return one_width(text).lstrip(_AROUND.replace("~", "")).startswith("~")


def starts_with(kind: str, text: str) -> bool:
    """Whether the message begins with a phrase of this kind. "Please" and the like may come first."""
    lead = _LEAD_OR_ANSWER if kind == "retry" else _LEAD
    return any(_begins(said, word) for said in _beginnings(text, lead) for word in _TABLE[kind])


def starts_with_answer(text: str) -> bool:
    """Whether the message begins with yes or no, whatever follows."""
    return _ANSWER.match(normalized(text)) is not None


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [each for each in _SENTENCES.split(one_width(text)) if each.strip()]


def parts(sentence: str) -> list[str]:
    """Return the parts of a sentence between commas. Each part of a question ends with a question mark."""
    mark = "?" if _is_question(sentence) else ""
    return [f"{part}{mark}" for part in re.split(r"[,\u3001\u2013\u2014]|\bbut\b", one_width(sentence))]


def asks(part: str) -> bool:
    """Whether a part of a sentence asks for the state of things, by its form or by its first word."""
    mark = "?" if _is_question(part) else ""
    return starts_with("look", part) or any(_ASKING.match(said + mark) for said in _beginnings(part, _LEAD))


def orders(part: str) -> bool:
    """Whether a part of a sentence asks for a change."""
    return starts_with("request", part) or _REMINDS.search(normalized(part)) is not None


def is_bare_reminder(part: str) -> bool:
    """Whether a part of a sentence asks to be reminded and says no more than when."""
    found = _REMINDS.search(normalized(part))
    return found is not None and found[0].isascii() and _NAMES_TASK.search(normalized(part)) is None


def _beginnings(text: str, lead: re.Pattern[str]) -> list[str]:
    """The beginning of the text, also without the leading words that mean nothing for its kind."""
    found = [normalized(text)[:_LONGEST_BEGINNING]]
    while (before := lead.match(found[-1])) is not None:
        found.append(found[-1][before.end() :])
    moved = _MOVED.search(found[0])
    return [*found, found[0][moved.end() :]] if moved else found


def contains_any(text: str, words: Iterable[str]) -> bool:
    """Whether the text contains any of these words."""
    said = normalized(text)
    return any(_contains(said, normalized(word)) for word in words)


def normalized(text: str) -> str:
    """The text in lower case and one width, without punctuation around it."""
    folded = one_width(text).casefold().replace("\u2019", "'")
    return " ".join(folded.split()).strip(_AROUND)


def _begins(said: str, word: str) -> bool:
    if not said.startswith(word):
        return False
    following = said[len(word) : len(word) + 1]
    return not word.isascii() or not (following.isascii() and following.isalnum())


def _contains(said: str, word: str) -> bool:
    return _latin_word(word).search(said) is not None if word.isascii() else word in said
