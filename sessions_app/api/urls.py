"""Addresses under /api/."""

from django.urls import path

from sessions_app.api import agents, sessions, streams, turns

urlpatterns = [
    path("agents/", agents.AgentList.as_view()),
    path("agents/<str:name>/", agents.AgentDetail.as_view()),
    path("agents/<str:name>/events/", streams.AgentEvents.as_view()),
    path("agents/<str:name>/documents/", agents.DocumentList.as_view()),
    path("agents/<str:name>/documents/<str:document>/", agents.DocumentDetail.as_view()),
    path("sessions/", sessions.SessionList.as_view()),
    path("sessions/<uuid:session_id>/", sessions.SessionDetail.as_view()),
    path("sessions/<uuid:session_id>/messages/", turns.messages),
    path("sessions/<uuid:session_id>/turns/", turns.TurnList.as_view()),
    path("sessions/<uuid:session_id>/events/", streams.SessionEvents.as_view()),
    path("sessions/<uuid:session_id>/mailbox/", sessions.Mailbox.as_view()),
    path("turns/<int:turn_id>/", turns.TurnDetail.as_view()),
    path("turns/<int:turn_id>/cancel/", turns.TurnCancel.as_view()),
]
