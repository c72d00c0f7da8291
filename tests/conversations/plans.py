"""Five conversations of an agent that plans, and five turns that nobody began."""

from agent_core.execution import Status
from agent_core.planner.run import MEANWHILE
from automations.models import CronJob, RunRecord, RunState, Source
from sessions_app.agents.documents import put_document, put_preference
from sessions_app.mailbox.deposit import NewUpdate, deposit
from sessions_app.memory.task_state import remember
from sessions_app.models import Document, Engine, ExecutionState, MailboxEvent
from tests.agent_core.planner.plans import RESPOND, answers, ask, plan, revision, says, tool
from tests.conversations.stage import Stage, calls

AWAKE = {"heartbeat": {"active_hours": [0, 24]}}


def _plans(stage: Stage) -> None:
    stage.agent_is(engine=Engine.PLANNER)


def _execution(stage: Stage) -> ExecutionState:
    return ExecutionState.objects.get(session=stage.chat)


def a_planned_greeting(stage: Stage) -> None:
    """A greeting is one respond step, and one model call."""
    _plans(stage)
    put_preference(stage.agent, stage.agent.owner_id, "Be brief, and call me Ada.")
    stage.script(answers("Hello Ada!"))
    turn = stage.say("Hello!")
    assert turn.usage["requests"] == 1
    assert [step["type"] for step in _execution(stage).steps] == ["respond"]


def a_plan_with_a_tool(stage: Stage) -> None:
    """A plan reads with a tool and answers; a list costs no look at the plan."""
    _plans(stage)
    stage.automation("Remind me to drink water.", "Drink water")
    remember(stage.chat.pk, {"important_facts": ["Ada has two cats"]})
    stage.script(plan(tool("list_routines"), RESPOND), says("One automation, 'Drink water', and no routine."))
    stage.say("Which automations and routines do I have?")
    execution = _execution(stage)
    assert execution.status == Status.COMPLETED
    assert "water" in execution.final_answer.lower()


def a_plan_that_asks(stage: Stage) -> None:
    """A plan asks what no tool can tell, waits, and goes on with the reply; updates are told before the question."""
    _plans(stage)
    deposit(stage.chat.pk, NewUpdate(event_type="job_completed", summary="The backup is done."))
    put_document(stage.agent.pk, "MEMORY.md", "# About Ada\n\n- likes tea\n")
    stage.script(plan(ask("Which colour shall I note?")))
    stage.say("Ask me for my favourite colour, then add it to MEMORY.md.")
    assert _execution(stage).status == Status.WAITING_USER
    assert stage.answer().startswith(f"{MEANWHILE}\n- The backup is done.\n\n")
    assert MailboxEvent.objects.get(target=stage.chat).acknowledged_at is not None
    edit = tool(
        "edit_document",
        name="MEMORY.md",
        revision=1,
        old_text="- likes tea",
        new_text="- likes tea\n- likes blue",
    )
    stage.script(
        plan(tool("read_document", name="MEMORY.md"), edit),
        revision("finish", answer="Noted: you like blue."),
    )
    stage.say("Blue.")
    assert _execution(stage).status == Status.COMPLETED
    assert "blue" in Document.objects.get(agent=stage.agent, name="MEMORY.md").content.lower()


def a_plan_that_needs_consent(stage: Stage) -> None:
    """A dangerous step waits for a yes to just that call."""
    _plans(stage)
    job = stage.automation("Remind me to drink water.", "Drink water")
    stage.script(plan(tool("cron", action="remove", job_id=job.pk), RESPOND))
    stage.say("Remove my automation about water.")
    assert _execution(stage).status == Status.WAITING_CONFIRMATION
    assert CronJob.objects.filter(pk=job.pk).exists()
    stage.script(revision("continue"), says("It is removed."))
    stage.say("yes")
    assert not CronJob.objects.filter(pk=job.pk).exists()


def a_planned_automation(stage: Stage) -> None:
    """An automation's turn plans, too: its prompt stands in each request, and a question that waits stays."""
    _plans(stage)
    stage.script(plan(ask("Which colour?")))
    stage.say("Ask me for a colour.")
    job = stage.automation("Tell me how many automations I have.", "Count")
    stage.script(plan(tool("cron", action="list"), RESPOND), says("You have one automation."))
    stage.fire(job)
    assert RunRecord.objects.get(job=job).state == RunState.SUCCEEDED
    waiting, own = ExecutionState.objects.filter(session=stage.chat).order_by("created_at")
    assert (waiting.status, own.status) == (Status.WAITING_USER, Status.COMPLETED)


def a_heartbeat_without_news(stage: Stage) -> None:
    """Nothing is due and nothing is missing: nobody hears of it."""
    stage.agent_is(**AWAKE)
    stage.script(says("HEARTBEAT_OK"))
    stage.fire(stage.system_job("heartbeat"))
    assert RunRecord.objects.get(job=stage.system_job("heartbeat")).state == RunState.SUCCEEDED
    assert not MailboxEvent.objects.exists()


def a_heartbeat_with_a_task(stage: Stage) -> None:
    """A due task is done, and its home hears of the outcome."""
    stage.agent_is(**AWAKE)
    job = stage.routine("Stretch", "Tell the person to stretch their back, in German.", "inline")
    stage.script(says("Zeit, den Rücken zu strecken!"))
    stage.fire(job)
    event = MailboxEvent.objects.get(target=stage.chat)
    assert "cken" in f"{event.summary} {event.detail}"
    assert RunRecord.objects.filter(job=job, state=RunState.SUCCEEDED).count() == 1


def a_reflection(stage: Stage) -> None:
    """A line of MEMORY.md that is marked becomes a routine, once, and its mark says so."""
    stage.agent_is(**AWAKE)
    line = "- water the plants every Friday at 18:00 [to be registered]"
    put_document(stage.agent.pk, "MEMORY.md", f"# About Ada\n\n{line}\n- likes tea\n")
    memory = Document.objects.get(agent=stage.agent, name="MEMORY.md")
    stage.script(
        calls(
            "add_routine",
            title="Water the plants",
            description="Tell the person to water the plants.",
            schedule="0 18 * * 5",
            execution_mode="inline",
            memory_line=3,
            memory_revision=memory.revision,
        ),
        says("I registered a routine: water the plants, on Fridays at 18:00."),
    )
    stage.fire(stage.system_job("heartbeat"))
    job = CronJob.objects.get(agent=stage.agent, source=Source.HEARTBEAT_REFLECT)
    assert job.expr.split()[:2] == ["0", "18"]
    memory.refresh_from_db()
    assert f"[registered: {job.pk}]" in memory.content


def a_dream(stage: Stage) -> None:
    """At night the task states of conversations are merged into MEMORY.md, which keeps what it has."""
    put_document(
        stage.agent.pk, "MEMORY.md", "# About Ada\n\n- water the plants [registered: abc123]\n- likes tea\n"
    )
    remember(stage.chat.pk, {"important_facts": ["Ada has two cats"], "open_loops": ["book the dentist"]})
    stage.script(
        says(
            "# About Ada\n\n- water the plants [registered: abc123]\n- likes tea\n- two cats\n- to do: the dentist"
        )
    )
    stage.fire(stage.system_job("dream"))
    memory = Document.objects.get(agent=stage.agent, name="MEMORY.md").content
    assert "cats" in memory
    assert "[registered: abc123]" in memory
    assert "tea" in memory


def a_background_job(stage: Stage) -> None:
    """An isolated routine works in a session of its own, and its home gets the result."""
    job = stage.routine("Summary", "Say in one sentence how many automations there are.", "isolated")
    stage.script(says("There is no automation yet. Nothing else was found."))
    stage.fire(job)
    event = MailboxEvent.objects.get(target=stage.chat)
    assert event.event_type == "job_completed"
    assert event.detail


PLANS = (
    a_planned_greeting,
    a_plan_with_a_tool,
    a_plan_that_asks,
    a_plan_that_needs_consent,
    a_planned_automation,
)
BACKGROUND = (a_heartbeat_without_news, a_heartbeat_with_a_task, a_reflection, a_dream, a_background_job)
