"""Addresses of the pages for people."""

from django.urls import path

from interfaces.web import actions, chat
from interfaces.web.agent import (
    agent_connections,
    agent_documents,
    agent_settings,
    agent_telegram,
    agent_tools,
    agents,
)
from interfaces.web.pages import register_place

agent_settings.register_sections()
agent_connections.register_connections_section()
agent_tools.register_tools_section()
agent_telegram.register_telegram_section()
register_place("Agents", "agents")

_CONNECTION = "agents/<key:name>/connections/<key:connection>"
urlpatterns = [
    path("", chat.home, name="home"),
    path("sessions/", chat.listing, name="conversations"),
    path("sessions/rendered/", chat.rendered, name="rendered"),
    path("sessions/new/", actions.begin_conversation, name="begin"),
    path("sessions/<uuid:session_id>/", chat.conversation, name="conversation"),
    path("sessions/<uuid:session_id>/messages/", actions.send_message, name="send"),
    path("sessions/<uuid:session_id>/older/", chat.older, name="older"),
    path("sessions/<uuid:session_id>/updates/", chat.updates, name="updates"),
    path("sessions/<uuid:session_id>/read/", chat.read, name="read"),
    path("sessions/<uuid:session_id>/title/", actions.rename, name="rename"),
    path("sessions/<uuid:session_id>/archive/", actions.put_away, name="archive"),
    path("sessions/<uuid:session_id>/unarchive/", actions.take_back, name="unarchive"),
    path("sessions/<uuid:session_id>/deleting/", chat.about_deleting, name="about-deleting"),
    path("sessions/<uuid:session_id>/delete/", actions.delete_conversation, name="delete"),
    path("turns/<int:turn_id>/stop/", actions.stop_turn, name="stop"),
    path("questions/<key:question_id>/answer/", actions.allow_or_refuse, name="answer-consent"),
    path("executions/<key:execution_id>/answer/", actions.answer_plan, name="answer-plan"),
    path("agents/", agents.agent_list, name="agents"),
    path("agents/<key:name>/", agents.about_agent, name="agent"),
    path("agents/<key:name>/model/", agent_settings.change_model, name="agent-model"),
    path("agents/<key:name>/events/", agent_settings.change_events_url, name="agent-events"),
    path("agents/<key:name>/connections/", agent_connections.add_connection, name="add-connection"),
    path(f"{_CONNECTION}/", agent_connections.change_connection, name="change-connection"),
    path(f"{_CONNECTION}/delete/", agent_connections.delete_connection, name="delete-connection"),
    path(f"{_CONNECTION}/test/", agent_connections.test_connection, name="test-connection"),
    path("agents/<key:name>/tools/", agent_tools.change_allowed, name="agent-tools"),
    path("agents/<key:name>/mcp/test/", agent_tools.test_server, name="test-mcp-server"),
    path("agents/<key:name>/telegram/", agent_telegram.change_bot, name="agent-telegram"),
    path("agents/<key:name>/telegram/code/", agent_telegram.make_code, name="telegram-code"),
    path(
        "agents/<key:name>/telegram/chats/<int:chat_id>/disconnect/",
        agent_telegram.disconnect_chat,
        name="disconnect-telegram-chat",
    ),
    path("agents/<key:name>/preferences/", agent_settings.change_preferences, name="agent-preferences"),
    path("agents/<key:name>/documents/<key:document>/", agent_documents.document_page, name="document"),
]
