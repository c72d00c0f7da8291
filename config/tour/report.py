"""What a person sees of the tour."""

import sys
from dataclasses import dataclass, field

LONGEST = 300  # characters of what somebody said


@dataclass(kw_only=True)
class Report:
    """Prints as the tour goes on, and counts."""

    passed: int = 0
    failed: int = 0
    _acts: int = field(default=0, init=False)
    _steps: int = field(default=0, init=False)

    def say(self, text: str = "") -> None:
        """One line."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def act(self, title: str) -> None:
        """The next act begins."""
        self._acts += 1
        self.say()
        self.say(f"Act {self._acts}: {title}")

    def step(self, title: str) -> None:
        """The next step begins."""
        self._steps += 1
        self.say()
        self.say(f"{self._steps}. {title}")

    def saw(self, who: str, text: object) -> None:
        """Something that was said or found."""
        shown = str(text) if len(str(text)) <= LONGEST else f"{str(text)[:LONGEST]}…"
        first, *more = shown.splitlines() or [""]
        self.say(f"   {who + ':':<12} {first}")
        for line in more:
            self.say(f"   {'':<12} {line}".rstrip())

    def check(self, what: str, holds: object, why: object = "") -> bool:
        """One thing that must hold; `why` says what was seen instead."""
        if holds:
            self.passed += 1
            self.say(f"   ok           {what}")
        else:
            self.failed += 1
            self.say(f"   FAIL         {what}: {why}" if why else f"   FAIL         {what}")
        return bool(holds)

    def end(self) -> bool:
        """The last line; whether everything held."""
        self.say()
        good = not self.failed and self.passed > 0
        self.say(f"{self.passed} checks ok." if good else f"{self.failed} FAILED, {self.passed} ok.")
        return good
