"""Some forty ways to break the fence, claims, commits, firing, locks, permits and budgets."""

from dataclasses import dataclass

from tests.broken_rules.changes import (
    Change,
    decide,
    drop_arguments,
    drop_operand,
    drop_statements,
    returns,
    substitute,
    unchain,
)


@dataclass(frozen=True)
class Break:
    """One way to break a rule, by changing a function, class or constant. An empty `path` is the whole module."""

    rule: str
    how: str
    path: str
    change: Change


CLAIM = "tests/sessions_app/turns/test_claim.py"
RECEIVE = "tests/sessions_app/turns/test_receive.py"
SHARES = "tests/sessions_app/turns/test_shares.py"
CONSENT = " ".join(f"tests/sessions_app/turns/{each}.py" for each in ("test_consent", "test_consent_forms"))
OWNERS = "tests/sessions_app/test_owners.py"
PERMITS = "tests/sessions_app/test_permits.py"
UPDATES = "tests/sessions_app/mailbox/test_updates.py"
BOUND = "tests/automations/turn_kinds/test_bound.py"
RETRIES = "tests/automations/firing/test_retries.py"
MESSAGES = "tests/automations/test_scheduled_messages.py"

# by module: the tests that see the breaks, as arguments of pytest, and the breaks
BREAKS: dict[str, tuple[str, *tuple[Break, ...]]] = {
    # the fence
    "sessions_app.journal": (
        CLAIM,
        Break("1.4", "a worker that lost its claim writes", "fence_select", drop_arguments("where", "claim")),
        Break("1.4", "a write does not wait for a takeover", "fence_select", unchain("with_for_update")),
        Break("1.4", "a transaction is not fenced", "Journal.fence", returns("None")),
    ),
    # claims
    "sessions_app.turns.claim": (
        f"{CLAIM} {OWNERS} {RECEIVE}",
        Break("1.2", "a second turn starts in a session", "next_id", drop_arguments("coalesce", "started")),
        Break("1.3", "a slot never goes before messages", "next_id", drop_arguments("coalesce", "aged")),
        Break("1.8", "a live worker's turn is taken", "_is_takeable", drop_arguments("and_", "unowned")),
        Break(
            "1.7",
            "a person's hint starts a slot",
            "_claim_statement",
            drop_arguments("where", "auto_allowed"),
        ),
        Break("10.0", "an inactive owner's turn begins", "_is_takeable", drop_arguments("and_", "is_active")),
        Break(
            "1.8", "who was away counts others as lost", "worker_is_gone", drop_arguments("and_", "was_away")
        ),
    ),
    "sessions_app.limits.running_turns": (
        SHARES,
        Break("10.0", "a user runs more turns than the limit", "has_room", returns("sa.true()")),
    ),
    # commits
    "sessions_app.turns.commit_statements": (
        f"{CLAIM} {BOUND}",
        Break("1.4", "a stale worker ends a turn", "_write", drop_arguments("where", "own_claim")),
        Break("1.4", "a turn ends twice", "_write", drop_arguments("where", "RUNNING")),
    ),
    "sessions_app.turns.commit": (
        f"{CLAIM} {UPDATES} {RECEIVE}",
        Break("1.5", "an unknown outcome is not looked up", "commit.once", decide(False, "_was_committed")),
        Break(
            "1.5",
            "a lost commit is not tried again",
            "commit",
            substitute("retry_while_down", "type(once).__call__"),
        ),
        Break("6.2", "a failed turn acknowledges updates", "_End.acknowledges", drop_operand("SUCCEEDED")),
        Break("2.2", "a message is lost with its host", "_settle_guests", decide(True, "SUCCEEDED")),
    ),
    "sessions_app.turns.run": (
        SHARES,
        Break("1.6", "a turn that ends wakes no other", "run_next_turn", drop_statements("next_lane")),
    ),
    # firing
    "automations.firing.fire_jobs": (
        f"tests/automations/firing/test_fire_jobs.py {RETRIES}",
        Break(
            "4.4", "a beat waits for another", "_claim", drop_arguments("select_for_update", "skip_locked")
        ),
        Break("4.7", "a retry does not give way to a slot", "account_for", decide(False, "retrying")),
    ),
    "automations.firing.placement": (
        OWNERS,
        Break("10.0", "an inactive owner's slots are fired", "skip_reason", decide(False, "reasons")),
    ),
    "automations.firing.decide": (
        "tests/automations/firing/test_decide.py",
        Break("4.5", "a missed slot runs however late", "_chosen", decide(True, "LATE_AFTER")),
        Break("4.5", "a slot runs beside an open run", "_overlap_reason", returns("None")),
    ),
    "automations.firing.one_by_one": (
        MESSAGES,
        Break("4.4", "a common fault disables all rows", "fire_batch", decide(True, "queued")),
    ),
    "automations.firing.fire_messages": (
        MESSAGES,
        Break("8.2", "messages of a session go at once", "_claim", drop_arguments("filter", "first")),
    ),
    "automations.models.run": (
        RETRIES,
        Break(
            "4.7",
            "an earlier attempt ends a later one",
            "RunTransitions.of_turn",
            drop_arguments("filter", "not_before"),
        ),
    ),
    "automations.runs.record": (
        f"{RETRIES} tests/automations/runs/test_failing.py",
        Break("4.7", "a final error is tried again", "_may_be_retried", drop_operand("FINAL_CODES")),
        Break("11.2", "an attempt that did something is repeated", "_did_nothing", returns("True")),
        Break("11.2", "an attempt that did nothing is the last", "_wait_for_next", decide(False, "repeats")),
        Break("11.3", "an empty answer is a success", "_attention", returns("Attention.NONE")),
    ),
    "automations.runs.health": (
        "tests/stories/test_scheduled_failures.py",
        Break("11.3", "an answer on its way is done", "_recount", decide(True, "is_on_its_way")),
    ),
    "automations.preflight": (
        "tests/automations/test_preflight.py",
        Break("11.5", "a problem is told at each look", "_store", decide(True, "since")),
    ),
    "automations.turn_kinds.gate": (
        "tests/automations/turn_kinds/test_gates.py",
        Break("11.6", "the model is asked whatever the gate finds", "check_gate", returns("None")),
    ),
    "automations.jobs.clock": (
        "tests/automations/jobs/test_edit.py",
        Break("4.5", "an edit forgets the slots that were due", "skip_overdue_slots", returns("None")),
    ),
    "automations.schedules.cron_slots": (
        "tests/automations/schedules/test_wall_time.py",
        Break("4.6", "a fixed time runs twice in a night", "_fixed_wall", decide(False, "fold")),
    ),
    # locks
    "sessions_app.turns.lock": (
        "tests/chaos/test_locks.py",
        Break("1.1", "a process holds a session twice", "SessionLocks.try_hold", decide(False, "_held")),
        Break("1.8", "a new connection takes no locks", "SessionLocks.retake", returns("None")),
    ),
    "automations.jobs.edit": (
        "tests/automations/jobs/test_skip.py tests/automations/jobs/test_choices.py",
        Break("4.5", "an edit does not wait for a beat", "lock_job", unchain("select_for_update")),
        Break("11.8", "an equal automation is added", "create_job", decide(False, "allow_duplicate")),
    ),
    "sessions_app.mailbox.deposit": (
        "tests/sessions_app/mailbox/test_deposit.py",
        Break("6.1", "an update is deposited twice", "deposit", decide(False, "is_new")),
    ),
    # permits
    "sessions_app.permits": (
        PERMITS,
        Break("3.5", "another system's post writes", "is_free", drop_operand("UNBOUND")),
        Break("3.5", "a resumed turn forgets what it read", "permit_of", substitute("steps", "()")),
        Break("3.5", "a post stays a person's without its hook", "stranger_of", drop_operand("exists")),
    ),
    "sessions_app.turns.tool_calls": (
        f"{CLAIM} {PERMITS} {RECEIVE}",
        Break(
            "1.9", "the intent of a call is not journaled", "JournalPorts.intend", drop_statements("record")
        ),
        Break("3.5", "a turn forgets that it read a page", "JournalPorts._settle", decide(False, "foreign")),
        Break("10.0", "a turn takes along all that waits", "JournalPorts._that_fit", returns("guests")),
    ),
    "sessions_app.questions.consent": (
        CONSENT,
        Break("3.5", "a yes allows a call twice", "_use", drop_operand("used")),
        Break("3.5", "a yes cannot be taken back", "may_be_taken_back", returns("False")),
        Break("3.5", "anybody in a group allows a call", "may_say", returns("True")),
        Break("3.5", "a yes from before the question counts", "_written_at", returns("turn.queued_at")),
    ),
    "sessions_app.models.questions": (
        "tests/sessions_app/turns/test_unattended.py",
        Break("11.4", "a yes counts after its time", "ConsentTransitions.grant_in_time", unchain("filter")),
    ),
    # budgets
    "agent_core.turn.tool_calls": (
        "tests/agent_core/turn/test_limits.py",
        Break(
            "3.2", "a turn makes any number of calls", "Limits.count_call", decide(False, "max_tool_calls")
        ),
        Break(
            "3.2", "a turn fails for ever", "Limits.count_result", decide(False, "max_failed_tool_outputs")
        ),
    ),
    "agent_core.turn.run": (
        "tests/agent_core/turn/test_resume.py",
        Break("3.2", "a resumed turn counts its calls anew", "_Turn._recount", returns("None")),
    ),
    "agent_core.turn.request_size": (
        "tests/agent_core/turn/test_request_size.py",
        Break("7.6", "a request is as long as its history", "fit_call", returns("call")),
    ),
    "agent_core.planner.run": (
        "tests/agent_core/planner/test_run.py",
        Break("7.2", "a plan goes on for ever", "", substitute("MOST_ITERATIONS", "10_000")),
    ),
}
