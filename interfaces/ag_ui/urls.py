"""The addresses of the AG-UI door."""

from __future__ import annotations

from django.urls import path

from interfaces.ag_ui.views import AgentRuns

urlpatterns = [path("<str:name>/", AgentRuns.as_view())]
