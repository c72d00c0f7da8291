"""Addresses under /api/. Django tries them in this order, so those that are asked for most come first."""

from django.urls import path

from interfaces.api.agents import agents, connections, document_revisions, hooks, telegram, tokens
from interfaces.api.sessions import deliveries, executions, sessions, streams, turns

urlpatterns = [
    path("sessions/", sessions.SessionList.as_view()),
    path("sessions/<uuid:session_id>/", sessions.SessionDetail.as_view()),
    path("sessions/<uuid:session_id>/messages/", turns.SessionMessages.as_view()),
    path("sessions/<uuid:session_id>/turns/", turns.TurnList.as_view()),
    path("sessions/<uuid:session_id>/events/", streams.SessionEvents.as_view()),
    path("sessions/<uuid:session_id>/deliveries/", deliveries.DeliveryList.as_view()),
    path("sessions/<uuid:session_id>/mailbox/", sessions.Mailbox.as_view()),
    path("sessions/<uuid:session_id>/executions/", executions.ExecutionList.as_view()),
    path("sessions/<uuid:session_id>/memory/", executions.Memory.as_view()),
    path("turns/", turns.TurnsOfUser.as_view()),
    path("turns/<int:turn_id>/", turns.TurnDetail.as_view()),
    path("turns/<int:turn_id>/cancel/", turns.TurnCancel.as_view()),
    path("agents/", agents.AgentList.as_view()),
    path("agents/<str:name>/", agents.AgentDetail.as_view()),
    path("agents/<str:name>/events/", streams.AgentEvents.as_view()),
    path("agents/<str:name>/documents/", agents.DocumentList.as_view()),
    path("agents/<str:name>/documents/<str:document>/", agents.DocumentDetail.as_view()),
    path(
        "agents/<str:name>/documents/<str:document>/revisions/",
        document_revisions.DocumentRevisionList.as_view(),
    ),
    path(
        "agents/<str:name>/documents/<str:document>/revisions/<int:revision>/",
        document_revisions.DocumentRevisionDetail.as_view(),
    ),
    path("agents/<str:name>/preferences/", executions.Preferences.as_view()),
    path("agents/<str:name>/hooks/", hooks.HookList.as_view()),
    path("hooks/<slug:hook_id>/", hooks.HookDetail.as_view()),
    path("hooks/<slug:hook_id>/token/", hooks.HookToken.as_view()),
    path("hooks/<slug:hook_id>/messages/", hooks.HookMessages.as_view()),
    path("agents/<str:name>/telegram/", telegram.AgentTelegram.as_view()),
    path("agents/<str:name>/telegram/code/", telegram.TelegramCode.as_view()),
    path("agents/<str:name>/telegram/chats/", telegram.TelegramChatList.as_view()),
    path("agents/<str:name>/telegram/chats/<int:chat_id>/", telegram.TelegramChatDetail.as_view()),
    path("agents/<str:name>/signing-secret/", deliveries.SigningSecret.as_view()),
    path("connections/", connections.ConnectionList.as_view()),
    path("connections/<str:connection>/", connections.ConnectionDetail.as_view()),
    path("connections/<str:connection>/test/", connections.ConnectionTest.as_view()),
    path("executions/<str:execution_id>/", executions.ExecutionDetail.as_view()),
    path("executions/<str:execution_id>/cancel/", executions.ExecutionCancel.as_view()),
    path("executions/<str:execution_id>/answer/", executions.ExecutionAnswer.as_view()),
    path("questions/<str:question_id>/", executions.QuestionDetail.as_view()),
    path("questions/<str:question_id>/answer/", executions.QuestionAnswer.as_view()),
    path("deliveries/", deliveries.DeliveriesOfUser.as_view()),
    path("deliveries/<int:delivery_id>/", deliveries.DeliveryDetail.as_view()),
    path("deliveries/<int:delivery_id>/redeliver/", deliveries.Redelivery.as_view()),
    path("tokens/", tokens.TokenList.as_view()),
    path("tokens/<slug:token_id>/", tokens.TokenDetail.as_view()),
    path("stream-tickets/", tokens.StreamTickets.as_view()),
]
