"""Output of the tour."""

import sys
from dataclasses import dataclass, field

LONGEST = 300  # characters of a message


@dataclass(kw_only=True)
class TourReport:
    """Prints each step and counts the checks."""

    passed: int = 0
    failed: int = 0
    _acts: int = field(default=0, init=False)
    _steps: int = field(default=0, init=False)

    def say(self, text: str = "") -> None:
        """Print one line."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def act(self, title: str) -> None:
        """Begin the next act."""
        self._acts += 1
        self.say()
        self.say(f"Act {self._acts}: {title}")

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._steps += 1
        self.say()
        self.say(f"{self._steps}. {title}")

    def saw(self, who: str, text: object) -> None:
        """Print a message or a value."""
        shown = str(text) if len(str(text)) <= LONGEST else f"{str(text)[:LONGEST]}…"
        first, *more = shown.splitlines() or [""]
        self.say(f"   {who + ':':<12} {first}")
        for line in more:
            self.say(f"   {'':<12} {line}".rstrip())

    def check(self, what: str, holds: object, why: object = "") -> bool:
        """Print and count a check; `why`: what was found instead. Returns whether it holds."""
        if holds:
            self.passed += 1
            self.say(f"   ok           {what}")
        else:
            self.failed += 1
            self.say(f"   FAIL         {what}: {why}" if why else f"   FAIL         {what}")
        return bool(holds)

    def end(self) -> bool:
        """Print the result. Returns whether all checks passed."""
        self.say()
        good = not self.failed and self.passed > 0
        self.say(f"{self.passed} checks ok." if good else f"{self.failed} FAILED, {self.passed} ok.")
        return good
