"""TaskState: what is kept of a conversation beyond its recent messages. Preference: a person's instructions."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from sessions_app.models.agent import Agent
from sessions_app.models.session import Session


class TaskState(models.Model):
    """Lasting facts of one session, without waiting steps and live state.

    `open_loops` and `important_facts` are lists of texts.
    """

    session = models.OneToOneField(
        Session, primary_key=True, on_delete=models.CASCADE, related_name="task_state"
    )
    current_goal = models.TextField(blank=True)
    active_flow = models.TextField(blank=True)
    open_loops = models.JSONField(default=list, blank=True)
    important_facts = models.JSONField(default=list, blank=True)
    last_decision = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=1)
    consolidated_revision = models.PositiveIntegerField(
        default=0, help_text="The revision that was last merged into MEMORY.md."
    )
    read_to_seq = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        help_text="Last message included in the task state while that message is still in the window.",
    )
    updated_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.current_goal or f"task state of {self.session_id}"


class Preference(models.Model):
    """One person's standing instructions to one agent. They are part of the system prompt of their conversations."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="preferences", db_index=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    content = models.TextField(blank=True)
    revision = models.PositiveIntegerField(default=1)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "user"], name="preference_once_per_person")]

    def __str__(self) -> str:
        return f"preferences of {self.user_id}"
