"""The acts of the tour in their order. To add an act, write a module and add its class here."""

from dataclasses import dataclass

from config.tour.act import Act
from config.tour.appointments import Appointments
from config.tour.background import Background
from config.tour.client import Server
from config.tour.planning import Planning
from config.tour.report import TourReport

ACTS: tuple[type[Act], ...] = (Appointments, Planning, Background)  # Background deletes its agent


@dataclass(kw_only=True)
class Tour:
    """One tour. `own`: an agent created for acts that change an agent's settings."""

    server: Server
    report: TourReport
    agent: str
    own: str
    key: str
    patience: float  # seconds that one turn or run may take

    def take(self) -> None:
        """Take all acts in order. Raises TourError if one cannot continue."""
        for act in ACTS:
            self.report.act(act.title)
            act(
                server=self.server,
                report=self.report,
                agent=self.own if act.needs_own_agent else self.agent,
                key=self.key,
                patience=self.patience,
            ).take()
