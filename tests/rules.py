"""What the server promises, by number. `python -m tests.rules` writes docs/rules.md from it and from the tests.

A test names the rule that it tries to break: `@pytest.mark.rule("4.8")`, or for a whole module in `pytestmark`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.up import ROOT

PAGE = ROOT / "docs" / "rules.md"
CHAPTERS = {
    1: "One turn at a time",
    2: "Busy sessions",
    3: "Inside a turn",
    4: "Automations",
    5: "Heartbeats",
    6: "Mailbox, jobs, routines and documents",
    7: "Planning and memory",
    8: "Scheduled messages",
    9: "Events and deliveries",
    10: "Operations",
    11: "Care around the run",
}
RULES = {
    "1.1": "A session is locked by one turn at a time, within a process and across processes. An unlock by an "
    "older connection releases nothing.",
    "1.2": "Two claims of one session never both succeed. A turn that was started is resumed before a queued one "
    "starts.",
    "1.3": "People's messages go first, then automations in the order of their slots. What has waited longer "
    "than `AUTOMATION_MAX_WAIT` runs next.",
    "1.4": "A worker that has lost its claim writes nothing.",
    "1.5": "A commit whose connection was lost is neither lost nor repeated.",
    "1.6": "After the release the worker looks for the session's next turn and sends a hint for it.",
    "1.7": "The sweep finds a turn whose hint was lost. Automations leave slots for people. The turns of one "
    "user are bounded in the whole fleet, and users take turns.",
    "1.8": "The turn of a live worker is never taken. A lost lock connection interrupts no turn. After an outage "
    "a worker that is back first waits for the others.",
    "1.9": "A resumed turn does not repeat a tool call that has its result; a call without one is reported as "
    '"outcome unknown" unless its tool is idempotent or transactional. Only rescues without progress '
    "count, in a row.",
    "1.10": "A worker that is told to stop leaves at once, and its turns go on elsewhere.",
    "1.11": "A cancel ends a queued turn at once and stops a running one.",
    "1.12": "A tool that hangs fails its turn and frees the session.",
    "2.1": "A message to a busy session is injected, queued, refused, or interrupts, as its sender chose. A post "
    "by a hook is one turn for each id.",
    "2.2": "A running turn takes along at most 20 waiting messages of 20,000 characters; a message is not lost "
    "when the turn that took it along fails. A post by another system is never taken into a person's "
    "turn, nor the other way round.",
    "2.3": "An automation is never injected. It waits as a row, is shown as `pending`, survives a restart, and "
    "delays no other session.",
    "3.1": "A turn ends with one `turn_end`, once for each window. A second try of the model replaces the text "
    "of the first.",
    "3.2": "Limits end a turn, also after it was resumed.",
    "3.3": "The system prompt holds only what is stable. Each type of session has its own.",
    "3.4": "Nobody writes into the session of a heartbeat or a job, and these read no other session's history.",
    "3.5": "A dangerous call happens only after a person's plain yes to a question that the server wrote and "
    "stored, once, and only while nothing else was said or if the yes names the question. A turn that "
    "answers another system may only read, unless a tool is allowed by name. After text from outside was read, a call "
    "that writes counts as dangerous. Text by others is shown in data blocks that it cannot end, and is marked where "
    "it is stored. Tools that fetch reach public addresses only.",
    "3.6": "A turn that fails leaves a short text that people can act on. It never holds a key, a prompt or a "
    "traceback; the exception is for operators.",
    "4.1": "System, bound and legacy jobs are told apart by their fields. System jobs are protected. Legacy jobs "
    "run in a session of their own, and only their delivered answers are judged. An import done twice is "
    "done once.",
    "4.2": "Only a turn of a person's message creates automations, in that session. What the tool `cron` "
    "refuses, it refuses with a text that the model can act on.",
    "4.3": "An automation always runs in its session; only routines have another mode.",
    "4.4": "Any number of beats start one run for each slot. One bad job holds up no other.",
    "4.5": "Each slot has a run or a skipped run with its reason, through edits, pauses, skips and clean-ups. "
    "What a person skips or pauses is never run. Each reason is explained in a sentence.",
    "4.6": "A fixed time runs once through each change of the clocks. After new time-zone data the next run "
    "is planned again.",
    "4.7": "A failed run is retried as often as its job allows, as a turn of its own, and gives way to the next "
    "slot.",
    "4.8": "An automation's turn is a normal turn of its session: it reads the history, and its answer stands in "
    "it. The history holds a readable trigger, the run holds the prompt. Titles and previews skip "
    "triggers.",
    "4.9": "The answer goes where a person last wrote in the session, until then to the session's own address. "
    "An address that no channel serves is refused, or warned of.",
    "4.10": "In unified mode each web thread displays the primary session and sends to it. Switching the mode "
    "moves, loses and doubles nothing.",
    "4.11": "A session with automations is deleted in two steps, and never comes back. Whatever happens in "
    "between finds it whole or gone. Deliveries that were not sent are closed with the reason.",
    "4.12": "An edit changes the named fields and no past run.",
    "5.1": "An agent's heartbeat is off until it is turned on. It comes at its interval, within its active hours, "
    "in its own time zone.",
    "5.2": "Only work in its own session skips a heartbeat. While the model is down, heartbeats back off.",
    "5.3": "Inline routines that are due start a turn at once, at any hour, one for each home, and share its "
    "outcome.",
    "5.4": "A reply of `HEARTBEAT_OK` with little else stays in the heartbeat's session; any other is deposited "
    "once, without the token.",
    "5.5": "A time reminder needs no model; one that fails goes to the model with a warning.",
    "5.6": "Each routine that an agent registers by itself is reported to its people, runs after that heartbeat, "
    "and is never one that exists or that people removed.",
    "6.1": "An event is deposited once, however often it is sent; an unread update gives way to a newer one with "
    "its key. What is dropped has a reason.",
    "6.2": "Updates are shown with people's turns only, urgent ones first, and acknowledged by the commit of a "
    "turn that succeeded.",
    "6.3": "Each slot of an isolated routine runs in a session of its own, reports once to its home, and is "
    "archived.",
    "6.4": "The mode of a routine is its creator's choice; one that was not given follows from timeout and "
    "description.",
    "6.5": "Routines have no duplicates and a limit for each agent, also when several requests race.",
    "6.6": "HEARTBEAT.md shows the routines and changes them in one transaction. A corrupted one changes "
    "nothing, and its agent is asked to repair it until it does.",
    "6.7": "A change of a document takes effect with the next turn. An edit names the revision it read, and "
    "is made once.",
    "6.8": "The dream merges the task state of sessions into MEMORY.md, never their history. A reply that is not a "
    "MEMORY.md replaces nothing, and what is replaced can be restored.",
    "7.1": "Executions, task state and preferences belong to one person, and are corrected by revision.",
    "7.2": "A plan ends with an answer or a question, within its bounds. Each decision is stored before it is "
    "carried out, so a crash at any write is resumed where it was.",
    "7.3": "Only a person's message is a reply, a confirmation, a retry or a command. A reply goes to the "
    "question asked last unless it names another.",
    "7.4": "A question waits until it is answered or given up. The planner is shown question and reply word for "
    "word, and all that it must know.",
    "7.5": "What a conversation has planned is read again for each plan, however the request is worded.",
    "7.6": "Compression keeps what lasts, marks whose words it was, and deletes no message. A request stays "
    "within its limit of tokens.",
    "8.1": "An agent schedules, lists and cancels fixed texts for the private chat it is in. A refusal begins "
    "with its code, and a call made twice is one message.",
    "8.2": "A message that is due becomes a turn without a model call, in the order of its session. It is sent "
    "once, or cancelled, or failed with the reason.",
    "8.3": "Replacing cancels what is pending in the session and stores the new message, in one transaction. A "
    "late message is sent, and says so.",
    "9.1": "Each window of an agent sees what runs in the background; only the session's own windows see its "
    "text.",
    "9.2": "A window that reconnects goes on where it was, and misses no event. A slow reader is dropped alone.",
    "9.3": "A delivery is written in its turn's commit, once, and sent in order, at least once with the same "
    "key. One that is given up stays visible.",
    "9.4": "A chat of a program that resends its history is one session of its user. A history that diverged becomes "
    "a branch or is refused, a repeated message is one turn, and what automations said meanwhile is told once.",
    "9.5": "An update of a Telegram bot counts once, and one process at a time reads them. Only a chat that the "
    "agent's owner connected by a one-time code is heard and written to, and only its person presses its buttons. A "
    "bot's token is shown nowhere.",
    "10.0": "Nothing hangs without an end, each input has a bound, and each user has a share: of connections, "
    "requests, streams, turns and unread updates. The work of an inactive owner stops within 10 s.",
    "10.1": "What was committed is counted once. A disabled feature can be enabled again.",
    "10.2": "`doctor` names each fault with its cure.",
    "10.3": "Retention removes what has ended, in small batches, and nothing that is open.",
    "10.4": "A sign-in link signs one browser in, once, within ten minutes, on the machine of the server. Reading its "
    "page does not use it up. Its token is in no log, no header and no row.",
    "10.5": "No text of a user, a model or another system is taken for markup on a page: nothing runs, loads, is sent "
    "or leads elsewhere because of it. Policies allow scripts from files of the server only, and forms to it only.",
    "10.6": "A token allows what its scopes name, on what it reaches; nothing else exists for it. It makes no token "
    "with more rights. Revoked or expired it is refused at once, and its open streams end within a second. A "
    "stream ticket opens one stream, once, within 60 s, as long as its token is valid.",
    "11.1": "Caps in tokens and US dollars for a run, an automation, an agent, a connection and a user are never "
    "exceeded, by however many workers and through any crash, which loses no cost. What a cap stops says which cap "
    "and until when. 80 % and 100 % are told once in each period.",
    "11.2": "An attempt in which no model answered and no tool was called is repeated after 1, 5 and 15 minutes. After "
    "five failed runs in a row a job runs once an hour, after twenty or three days it is paused; the owner is told "
    "once, and once when it works again. A person tries a failed slot again as a further attempt of its run.",
    "11.3": "A run whose answer is empty, cut short or not delivered says so beside its state; three in a row count as "
    "failing.",
    "11.4": "A question of a scheduled turn holds nothing. It is told to the owner and lives 24 hours; a newer one for "
    "the same call replaces it. A yes that names it makes exactly that call, once, in a turn of its own, if tool, "
    "arguments, rights and provenance are unchanged.",
    "11.5": "What will stop an automation is found when it is saved and in the hour before its slot, without a "
    "model call: model and key, channel and address, time zone, tools. A problem is told once, and stands first in "
    "`explain`.",
    "11.6": "A gate runs before the model. It finds nothing to do, and the run is skipped; or its findings are shown "
    "to the turn as text from outside; or it fails, and the turn runs with a warning.",
    "11.7": "An automation may name its model, fallback model, length of a reply and a narrower list of tools. A "
    "change of one field changes that field alone.",
    "11.8": "The appointments that a turn made are shown with its answer. A second automation with the same message "
    "and schedule is refused in a session, unless it is allowed.",
}


def _is_full(nodes: list[ast.expr]) -> bool:
    """Whether a mark among these expressions leaves the tests to `make test-all`: not that of a single parameter."""
    marks = [mark for each in nodes for mark in (each.elts if isinstance(each, ast.List) else [each])]
    return any(ast.unparse(mark) == "pytest.mark.full" for mark in marks)


def _marked(nodes: list[ast.expr]) -> set[str]:
    """The rules named by marks in these expressions."""
    calls = (node for each in nodes for node in ast.walk(each) if isinstance(node, ast.Call))
    return {
        argument.value
        for call in calls
        if ast.unparse(call.func) == "pytest.mark.rule"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def quick_rules() -> set[str]:
    """The rules that a test of `make test` marks: one without `full`, also at its class and its module."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py"))
    return {rule for tree in trees for rule in _quick_below(tree, set())}


def _quick_below(parent: ast.Module | ast.ClassDef, around: set[str]) -> Iterator[str]:
    """The rules of the quick tests in a module or class. `around`: those that are marked around it."""
    own = [
        node.value
        for node in parent.body
        if isinstance(node, ast.Assign) and any(ast.unparse(each) == "pytestmark" for each in node.targets)
    ]
    marks = own + (parent.decorator_list if isinstance(parent, ast.ClassDef) else [])
    if _is_full(marks):
        return
    rules = around | _marked(marks)
    for node in parent.body:
        if isinstance(node, ast.ClassDef):
            yield from _quick_below(node, rules)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_full(node.decorator_list):
            yield from rules | _marked(node.decorator_list) if node.name.startswith("test_") else ()


def _marks_below(parent: ast.AST, owner: str) -> Iterator[tuple[str, str]]:
    """The marks inside a node. `owner` is the innermost class or function around them."""
    for node in ast.iter_child_nodes(parent):
        name = owner
        if isinstance(node, ast.Assign) and any(ast.unparse(each) == "pytestmark" for each in node.targets):
            yield from ((rule, owner) for rule in _marked([node.value]))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = node.name
            yield from ((rule, name) for rule in _marked(node.decorator_list))
        yield from _marks_below(node, name)


def proofs() -> dict[str, dict[str, list[str]]]:
    """The tests of each rule: by rule and file, the names; none for a whole file."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, name in _marks_below(ast.parse(path.read_text()), ""):
            names = found[rule][str(path.relative_to(ROOT))]
            names += [name] if name else []
    return found


def page() -> str:
    """docs/rules.md."""
    tests = proofs()
    lines = ["# Rules", "", "What the server promises, and the tests that try to break each promise."]
    lines += [
        "This page is written by `make rules` from the marks of the tests; code and tests cite the numbers.",
        "",
    ]
    chapter = 0
    for rule, text in RULES.items():
        if int(rule.split(".")[0]) != chapter:
            chapter = int(rule.split(".")[0])
            lines += [f"## {chapter}. {CHAPTERS[chapter]}", ""]
        lines += [f"**{rule}** {text}", ""]
        for path, names in tests[rule].items():
            lines += ["- " + ", ".join([f"`{path}`", *(f"`{name}`" for name in names)])]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
