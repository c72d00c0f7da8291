"""Tells by its form whether a text reports live state, or the wait of a plan step, and not a fact of a life.

"The reminder is at 9" has a live thing as its subject and a state as its predicate. "The reminder of the tax office
came on 4 March", "She is an automation engineer at plant 7" and "医生提醒我吃药" only use the same words.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from agent_core.text import phrases

_STATES: Final = re.compile(  # without one of these, or a figure, a clause states nothing
    r"\d|\b(?:runs|is|are|was|were|exists?|has|have|there|set|scheduled|enabled|disabled|paused|created|deleted)\b"
    "|有|存在|已|目前|当前"
)
_CLAUSES: Final = re.compile(
    r"[;,!?](?!\d)|\.(?=\s|$)|\band\b|\bbut\b|[\uff0c\u3002\uff1b\uff01\uff1f]", re.IGNORECASE
)
_WORD: Final = re.compile(r"[^\W\d_]")
_NAME: Final = (  # 'news', or an id
    r"(?:\s*(?:(?:named|called)\s+)?[\"'\u2018\u201c\u00ab].+?[\"'\u2019\u201d\u00bb]|\s+#?(?=\w*\d)[a-z]\w{5,})?(?:\s*\(.+?\))?"
)
_WHICH: Final = (
    r"(?:(?:the|an?|this|that|these|those|my|your|his|her|their|our|its|(?:the )?(?:user|person)'s|all|any|no|some"
    r"|both|every|each|another|other|only|first|next|last|active|new|existing|current|daily|weekly|hourly|enabled"
    r"|disabled|paused|several|many|one|two|three|four|five|\d+(?::\d+)?)\s+)"
)
_OWNER: Final = r"(?:(?:the )?(?:user|person|agent)|(?:(?:currently|now|today) )?[\w-]+)"
_KIND: Final = r"(?:(?!(?:in|of|for|with|at|on|to|from|about|as)\b)[\w-]+\s+){0,2}"  # "the water reminder"
_WEEKDAY: Final = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_DAY: Final = rf"\w*\d|now|noon|midnight|{_WEEKDAY}"
_WHEN: Final = rf"(?:on|off|in|at|active|running|there)(?=$|\s+(?:{_DAY}))"
_AT: Final = (  # a time, and not a place, as in "the automation at plant 7"
    rf"(?:every|each|(?:at|on)\s+(?:\d|noon|midnight|{_WEEKDAY}|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))"
)
_STILL: Final = r"(?:(?:currently|now|still|also|not|already|only)\s+)*"
_STATE: Final = (
    rf"(?:(?:(?:(?:is|are|was|were|has been|have been)\s+)?{_STILL}"
    r"(?:due|set|scheduled|enabled|disabled|paused|configured|created|deleted|removed|cancell?ed|sent at)"
    rf"|(?:is|are)\s+{_STILL}(?:{_WHEN}|every|each|daily|weekly|hourly)"
    r"|runs?|fires?|exists?|repeats?|rings?|goes off)\b|(?:is|are|has|have)\s+\S*\d)"
)
_PAST: Final = (  # "the reminder to pay came on 4 March"
    r"(?!.*\b(?:came|was|were|had|got|went|sent|said|left"
    r"|(?!(?:enabled|disabled|paused|scheduled|configured|named|called)\b)\w{2,}ed)\b)"
)
_SOME_CHINESE: Final = "(?:[0-9]+|[一二两三四五六七八九十几])?[个条项]?"
_SUBJECT_CHINESE: Final = (
    f"^(?:目前|当前|现在)?(?:用户|我|你|您|他|她)?的?(?:所有|全部|这|那)?{_SOME_CHINESE}"
)
_TIME_CHINESE: Final = "(?:(?:每|[0-9]+[:点时月日]|[早晚周]).*的)?"  # "每天9点的提醒", not "7号工厂的自动化"

_US: Final = r"(?:(?:the|an?) )?(?:user|person|tool|you)\b"
_STEP_WAITS: Final = re.compile(
    rf"^(?:the )?next step\b|^下一步|\b(?:wait(?:s|ing)? for|await(?:s|ing)?) (?:{_US}|your\b"
    r"|(?:(?:the|an?|any|further|more|final|explicit) )*(?:answers?|reply|replies|responses?|confirmation|approval"
    r"|consent|permission|inputs?|results?|outputs?|information|details?|data|instructions?|choice|decision|feedback"
    rf"|date|value|field)(?:$|[^\w\s]| (?:(?:to|about|on|whether|before|for|with|in|so)\b|(?:from|of|by) {_US})))"
    r"|[等待](?:您|你|用户|对方)?的?(?:进一步)?的?(?:确认|回复|回答|答复|输入|批准|同意|结果|指示|选择|工具)"
)


def is_step_wait(text: str) -> bool:
    """Whether it waits for the user, a tool, or an answer of nobody else; not "for the landlord's answer"."""
    return _STEP_WAITS.search(phrases.normalized(text)) is not None


def is_live_report(text: str, things: Collection[str]) -> bool:
    """Whether every clause states how one of these things is. Otherwise the text also has another fact."""
    form = _form(frozenset(things))
    clauses = [phrases.normalized(clause) for clause in _CLAUSES.split(text) if _WORD.search(clause)]
    return (
        form is not None
        and bool(clauses)
        and all(_STATES.search(said) and form.search(said) for said in clauses)
    )


@lru_cache(maxsize=8)
def _form(things: frozenset[str]) -> re.Pattern[str] | None:
    """The form of a clause whose subject is one of these things, or that says that there are some."""
    names = sorted((phrases.normalized(name) for name in things), key=len, reverse=True)
    latin = "|".join(re.escape(name) for name in names if name.isascii())
    chinese = "|".join(re.escape(name) for name in names if not name.isascii())
    forms = []
    if latin:
        thing = rf"(?<!\w)(?:{latin})s?(?!\w){_NAME}"
        after = rf"(?=$|\s+(?:{_WHEN}|to|for|every|each|that|which|set|daily|right|now|currently|\d))"
        forms += [
            rf"^(?:{_WHICH}+{_KIND})?{thing}\s+(?:(?:that|which|to|for)\s.*\s)?{_STATE}",
            rf"^{_WHICH}+{thing}$",
            rf"^{_PAST}{_WHICH}*{thing}(?:\s+(?:to|for)\s.*)?\s+{_AT}",
            rf"^{_PAST}(?:{_OWNER}\s+)?(?:there (?:is|are)|has|have)\s+(?:{_WHICH}+{_KIND})?{thing}{after}",
        ]
    if chinese:
        thing = rf"(?:{chinese}){_NAME}"
        forms += [
            rf"{_SUBJECT_CHINESE}{_TIME_CHINESE}{thing}(?:$|[是在已每于为设开关停暂启将会未]|运行|存在|目前|当前)",
            rf"(?:有|存在|设置了|设了|创建了){_SOME_CHINESE}{_TIME_CHINESE}{thing}(?:$|每|在运行|正在)",
        ]
    return re.compile("|".join(forms)) if forms else None
