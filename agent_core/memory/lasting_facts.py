"""Filters a task state for durable facts (rule 7.6): no waits for plan steps, no secrets, no live values.

What a person said of their life stays, with its figures and dates. The messages tell whether a person said it: the
message that the fact comes from, or the figures that the person wrote. A report of live state is known by its form:
"The reminder is at 9" has a live thing as its subject and a state as its predicate. "The reminder of the tax office
came on 4 March", "She is an automation engineer at plant 7" and "医生提醒我吃药" only use the same words.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent_core.memory import task_state
from agent_core.memory.task_state import TaskStateData
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
    """Whether the text says that something waits for the user, a tool or an answer, but not for a third person's
    answer.
    """
    return _STEP_WAITS.search(phrases.normalized(text)) is not None


def is_live_report(text: str, things: Collection[str]) -> bool:
    """Whether every clause of the text only states how one of these things is, such as "the reminder is at 9"."""
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


STEPS: Final = (  # phrases about plan steps
    *("pending step", "call the tool", "call tool", "use the tool", "ask the user", "needs to provide"),
    *("user must provide", "user to provide", "waiting for the user", "wait for the user", "await the user"),
    *("待用户", "等用户", "等待用户", "调用工具", "需要用户提供"),
)
SETTINGS: Final = (  # the state of anything
    *("is configured", "are configured", "not configured", "is enabled", "is disabled", "does not exist"),
    *("no tool", "已配置", "未配置"),
)
STATES: Final = (  # the state of something live
    *("runs", "is scheduled", "are scheduled", "exists", "exist", "there is", "there are", "has", "have"),
    *("enabled", "disabled", "paused", "is set", "set to", "created", "deleted", "is on", "is off", "are on"),
    *("are off", "right now", "currently", "at the moment", "as of now", "有", "存在", "已", "目前", "当前"),
)
NOW: Final = ("right now", "currently", "at the moment", "as of now", "目前", "当前")
VALUES: Final = (  # with a figure beside them they name a live value
    *("balance", "balances", "price", "prices", "priced", "position", "positions", "holding", "holdings"),
    *("trades at", "traded at", "trading at", "exchange rate", "orders", "open order"),
    *("余额", "价格", "持仓", "仓位", "汇率", "订单", "挂单"),
)
LEAST_WORDS: Final = 3  # fewer words of a text do not tell that a person said it
_FIGURES = re.compile(r"\d")
_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATES = re.compile(  # dates and times of day
    rf"\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}:\d{{2}}|\b\d{{1,2}}(?:st|nd|rd|th)?\.? (?:{_MONTHS})[a-z]*\.?(?: \d{{4}})?"
    rf"|\b(?:{_MONTHS})[a-z]*\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{4}}年|\d{{1,2}}月|\d{{1,2}}[日号点]",
    re.IGNORECASE,
)
_NAMED: Final = r"(?:pass(?:word|phrase|code|wd)|pwd|pin|secret|api[-_ ]?key|access[-_ ]?key|token)"
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghu|ghs|github_pat|glpat|xox[abprs])[-_][\w-]{8,}|\b(?:AKIA|AIza|eyJ)[\w-]{12,}"
    r"|-----BEGIN|\b(?i:bearer)\s+\S{16,}|\b[0-9a-fA-F]{32,}\b"
    r"|\b(?=\w*[0-9])(?=\w*[a-z])(?=\w*[A-Z])[A-Za-z0-9_]{24,}\b"
    # "the password for the door is x": a single word, or one with a figure in it
    rf"|\b(?i:{_NAMED})(?:\s+(?:for|of|to|on)(?:\s+\S+){{1,4}}?)?(?:\s+(?:is|was)\s*:?|\s*[:=])\s*"
    r"(?:\S*[0-9]\S*|\S+\s*$)"
    rf"|\b(?i:{_NAMED})\s+(?=\S*[0-9])\S{{4,}}"
    r"|(?:密码|口令|密钥|令牌)\s*(?:是|为|[:=\uff1a])\s*[!-~]{3,}"
)

_NOTHING: Final = TaskStateData()


@dataclass(frozen=True, kw_only=True, slots=True)
class FactFilter:
    """Decides which facts are durable.

    ``tools`` are the names of the tools. ``live`` are words that may refer to live state, ``things`` those that refer
    to nothing else. ``figures`` are the numbers that people wrote, as ``sources.figures_in`` returns them, ``said`` the
    words of each of their sentences, as ``phrases.stated_words`` returns them.
    """

    tools: Collection[str] = ()
    live: Collection[str] = ()
    things: Collection[str] = ()
    figures: frozenset[str] = frozenset()
    said: Collection[frozenset[str]] = ()

    def durable(
        self, held: TaskStateData, *, stated: Collection[str] = (), before: TaskStateData = _NOTHING
    ) -> TaskStateData:
        """Return the durable parts. ``stated`` are facts from a person's message; parts of ``before`` always stay."""
        kept = set(before.as_text().splitlines())

        def stays(label: str, text: str, *, is_stated: bool = False) -> bool:
            return f"{label}: {text}" in kept or self._lasts(text, is_stated=is_stated)

        is_goal = f"Goal: {held.current_goal}" in kept or self._is_goal(held.current_goal)
        return TaskStateData(
            current_goal=held.current_goal if is_goal else "",
            active_flow=held.active_flow if stays("Under way", held.active_flow) else "",
            open_loops=tuple(text for text in held.open_loops if stays("Open", text)),
            important_facts=tuple(
                text for text in held.important_facts if stays("Fact", text, is_stated=text in stated)
            ),
            last_decision=held.last_decision if stays("Decided", held.last_decision) else "",
        )

    def without_live(self, held: TaskStateData) -> TaskStateData:
        """Return the state without lines about live things, to be shown beside their current state."""

        def stays(text: str) -> bool:
            return not phrases.contains_any(text, self.things)

        return TaskStateData.from_json(
            {
                name: (value if stays(value) else "")
                if isinstance(value, str)
                else list(filter(stays, value))
                for name, value in held.to_json().items()
            }
        )

    def _lasts(self, text: str, *, is_stated: bool = False) -> bool:
        tool_names = (name for name in self.tools if "_" in name)  # other names are ordinary words
        if phrases.contains_any(text, (*STEPS, *tool_names)) or _SECRET.search(text):
            return False
        if is_live_report(text, self.things):
            return False  # it can be looked up, whoever said it
        if is_stated or self._are_peoples_figures(text) or self._are_peoples_words(text):
            return True
        if is_step_wait(text) or phrases.contains_any(text, SETTINGS):
            return False
        has_figure = any(map(str.isdigit, text))
        if phrases.contains_any(text, self.live) and (has_figure or phrases.contains_any(text, STATES)):
            return False
        return not (phrases.contains_any(text, VALUES) and (has_figure or phrases.contains_any(text, NOW)))

    def _is_goal(self, text: str) -> bool:
        # a figure in a request says how something should be, not how it is
        is_wish = any(phrases.starts_with(kind, text) for kind in ("look", "request"))
        wish = _FIGURES.sub("", text) if is_wish else text
        return self._lasts(wish) and not _SECRET.search(text)

    def _are_peoples_words(self, text: str) -> bool:
        """Whether the text has no figures, and one sentence of a person has all of its words."""
        words = frozenset().union(*phrases.stated_words(text))
        return (
            len(words) >= LEAST_WORDS
            and not _FIGURES.search(text)
            and any(words <= each for each in self.said)
        )

    def _are_peoples_figures(self, text: str) -> bool:
        """Whether the text has figures and people wrote all of them. Dates may be left out: their spelling varies."""
        said = task_state.figures_in([text])
        rest = task_state.figures_in([_DATES.sub(" ", text)])
        return bool(said) and (said <= self.figures or (bool(rest) and rest <= self.figures))
