"""Addresses of the pages of agents, and the sections of an agent's page."""

from django.urls import path

from interfaces.web.agent import (
    agents,
    channels,
    connections,
    documents,
    heartbeat,
    sections,
    settings,
    telegram,
    tools,
)

sections.use_sections(
    settings.MODEL,
    connections.SECTION,
    settings.DOCUMENTS,
    heartbeat.SECTION,
    tools.SECTION,
    channels.SECTION,
    telegram.SECTION,
    settings.MEMORY,
    settings.HOOKS,
)

urlpatterns = [
    path("", agents.agent_list, name="agents"),
    path("-/tests/<key:message_id>/", channels.test_state, name="test-channel-state"),
    path("<key:name>/", agents.about_agent, name="agent"),
    path("<key:name>/model/", settings.change_model, name="agent-model"),
    path("<key:name>/events/", settings.change_events_url, name="agent-events"),
    path("<key:name>/preferences/", settings.change_preferences, name="agent-preferences"),
    path("<key:name>/connections/", connections.add_connection, name="add-connection"),
    path("<key:name>/connections/<key:connection>/", connections.change_connection, name="change-connection"),
    path(
        "<key:name>/connections/<key:connection>/delete/",
        connections.delete_connection,
        name="delete-connection",
    ),
    path(
        "<key:name>/connections/<key:connection>/test/", connections.test_connection, name="test-connection"
    ),
    path("<key:name>/documents/<key:document>/", documents.document_page, name="document"),
    path("<key:name>/heartbeat/", heartbeat.change_heartbeat, name="agent-heartbeat"),
    path("<key:name>/tools/", tools.change_allowed, name="agent-tools"),
    path("<key:name>/mcp/test/", tools.test_server, name="test-mcp-server"),
    path("<key:name>/channels/<uuid:session_id>/test/", channels.send_test, name="test-channel"),
    path("<key:name>/telegram/", telegram.change_bot, name="agent-telegram"),
    path("<key:name>/telegram/code/", telegram.make_code, name="telegram-code"),
    path(
        "<key:name>/telegram/chats/<int:chat_id>/disconnect/",
        telegram.disconnect_chat,
        name="disconnect-telegram-chat",
    ),
]
