"""The acts of the tour, in their order. Another act is a file of its own and a name here."""

from dataclasses import dataclass

from config.tour.act import Act
from config.tour.appointments import Appointments
from config.tour.background import Background
from config.tour.client import Server
from config.tour.planning import Planning
from config.tour.report import Report

ACTS: tuple[type[Act], ...] = (Appointments, Planning, Background)  # the last one deletes its agent


@dataclass(kw_only=True)
class Tour:
    """One tour; `own` is an agent that was made for it, for acts that change an agent's settings."""

    server: Server
    report: Report
    agent: str
    own: str
    key: str
    patience: float  # seconds that one turn or run may take

    def take(self) -> None:
        """All acts in order. TourError when one cannot go on."""
        for act in ACTS:
            self.report.act(act.title)
            act(
                server=self.server,
                report=self.report,
                agent=self.own if act.alone else self.agent,
                key=self.key,
                patience=self.patience,
            ).take()
