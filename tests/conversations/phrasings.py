"""Twenty ways to ask for something later, in two languages, and the appointment that each should leave (rule 11.8).

An agent that only promises it, that repeats what was meant once, or that does at once what was meant for later, leaves
other rows.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from agent_core.llm.protocol import ModelReply
from automations.models import CronJob, ScheduledMessage
from tests.agent_core.planner.plans import says
from tests.conversations.stage import Stage, calls

NEAR = timedelta(minutes=3)


@dataclass(frozen=True, kw_only=True)
class Phrasing:
    """What a person says. One of: `minutes` from now, once; `cron` or `every` seconds, repeated; neither: nothing.

    `words`: the appointment must be the agent's work (an automation), not a text that is fixed now.
    """

    said: str
    minutes: int = 0
    cron: str = ""
    every: int = 0
    words: bool = False


PHRASINGS = (
    Phrasing(said="Remind me in half an hour to call Ada.", minutes=30),
    Phrasing(said="In half an hour, check again whether the build is green.", minutes=30, words=True),
    Phrasing(said="Check back with me in two hours and ask how the talk went.", minutes=120),
    Phrasing(said="Ping me in 45 minutes, the laundry will be done.", minutes=45),
    Phrasing(
        said="Look at the weather again in three hours and tell me if it rains.", minutes=180, words=True
    ),
    Phrasing(said="Every half hour, remind me to stand up.", every=1800),
    Phrasing(
        said="From now on check the news each morning at seven and summarise them.",
        cron="0 7 * * *",
        words=True,
    ),
    Phrasing(said="Remind me on weekdays at 17:30 to write the report.", cron="30 17 * * 1-5"),
    Phrasing(said="I'll be back in half an hour.", minutes=0),
    Phrasing(said="Yesterday you reminded me at nine. Thank you!", minutes=0),
    Phrasing(said="Erinnere mich in einer halben Stunde daran, Ada anzurufen.", minutes=30),
    Phrasing(said="Schau in einer halben Stunde noch einmal, ob der Build grün ist.", minutes=30, words=True),
    Phrasing(said="Melde dich in zwei Stunden und frag, wie der Vortrag war.", minutes=120),
    Phrasing(said="Sag mir in 45 Minuten, dass die Wäsche fertig ist.", minutes=45),
    Phrasing(said="Sieh in drei Stunden nach dem Wetter und sag mir, ob es regnet.", minutes=180, words=True),
    Phrasing(said="Erinnere mich jede halbe Stunde daran aufzustehen.", every=1800),
    Phrasing(
        said="Fasse ab jetzt jeden Morgen um sieben die Nachrichten zusammen.", cron="0 7 * * *", words=True
    ),
    Phrasing(said="Erinnere mich werktags um 17:30 Uhr an den Bericht.", cron="30 17 * * 1-5"),
    Phrasing(said="Ich bin in einer halben Stunde wieder da.", minutes=0),
    Phrasing(said="Gestern hast du mich um neun erinnert. Danke!", minutes=0),
)


def good_replies(asked: Phrasing) -> tuple[ModelReply, ...]:
    """What a good agent does."""
    if not (asked.minutes or asked.cron or asked.every):
        return (says("All right."),)
    at = (datetime.now(UTC) + timedelta(minutes=asked.minutes)).isoformat(timespec="seconds")
    if asked.minutes and not asked.words:
        return calls("schedule_private_message", send_at=at, message_text=asked.said), says("I will.")
    plan: dict[str, Any] = {"cron_expr": asked.cron} if asked.cron else {"every_seconds": asked.every}
    return calls("cron", action="add", message=asked.said, **({"at": at} if asked.minutes else plan)), says(
        "I will."
    )


def judge(stage: Stage, asked: Phrasing) -> None:
    """The rows are those that the words ask for."""
    jobs = list(CronJob.objects.filter(session=stage.chat))
    texts = list(ScheduledMessage.objects.filter(session=stage.chat))
    if not (asked.minutes or asked.cron or asked.every):
        assert (jobs, texts) == ([], [])
        return
    assert len(jobs) + len(texts) == 1
    if asked.minutes:
        at = jobs[0].at if jobs else texts[0].send_at
        assert at is not None, "it is repeated, and was meant once"
        assert abs(at - datetime.now(UTC) - timedelta(minutes=asked.minutes)) < NEAR
        assert jobs or not asked.words, "it is a text that was fixed before anybody looked"
        return
    [made] = jobs
    if asked.every:
        assert made.every_seconds == asked.every or made.expr in {"*/30 * * * *", "0,30 * * * *"}
        return
    days = {"mon-fri": "1-5", "1,2,3,4,5": "1-5", "*": "*"}
    assert made.expr.split()[:2] == asked.cron.split()[:2]
    assert days.get(made.expr.split()[4].lower(), made.expr.split()[4]) == asked.cron.split()[4]


def play(stage: Stage, asked: Phrasing) -> None:
    """Say it, and look at what is left."""
    stage.script(*good_replies(asked))
    stage.say(asked.said)
    judge(stage, asked)
