"""Addresses of what this app adds to the page of an agent."""

from django.urls import path

from interfaces.web.agent import agent_channels, agent_heartbeat

agent_heartbeat.register_heartbeat_section()
agent_channels.register_channels_section()

urlpatterns = [
    path("agents/<key:name>/heartbeat/", agent_heartbeat.change_heartbeat, name="agent-heartbeat"),
    path("agents/<key:name>/channels/<uuid:session_id>/test/", agent_channels.send_test, name="test-channel"),
    path("agents/-/tests/<key:message_id>/", agent_channels.test_state, name="test-channel-state"),
]
