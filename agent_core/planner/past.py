"""What the journal of a planned turn holds of its earlier attempts."""

from __future__ import annotations

from agent_core.types import Step, StepKind, ToolResult, Usage


class Past:
    """What the journal holds of earlier attempts."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = steps
        self.usage = Usage()
        self.is_saved = False
        self.heard: tuple[str, ...] = ()
        self.intended: set[str] = set()
        self.results: dict[str, ToolResult] = {}
        for step in steps:
            match step.kind:
                case StepKind.CHECKPOINT:
                    self.is_saved = True
                    self.usage = Usage.from_json(step.data["usage"])
                case StepKind.INJECT:
                    self.heard += tuple(step.data["texts"])
                case StepKind.INTENT:
                    self.intended.add(step.data["id"])
                case StepKind.RESULT:
                    self.results[step.data["id"]] = ToolResult.from_json(step.data)
