"""Addresses of the pages for people."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path, register_converter
from django.urls.converters import StringConverter

from interfaces.http.sign_in import enter_by_link
from interfaces.web import (
    account,
    conversation,
    exports,
    invitations,
    messages,
    notifications,
    password_reset,
)
from interfaces.web.agent import channels, connections, documents, picker, settings, tools
from interfaces.web.agent.new import make_agent
from interfaces.web.agent.page import agent_list, agent_page, section_form
from interfaces.web.appointments import panel, pauses, upcoming


class Key(StringConverter):
    """A key in an address: up to 200 characters without a slash or a control character, which databases refuse."""

    regex = r"[^/\x00-\x1f\x7f]{1,200}"


register_converter(Key, "key")

of_conversation = [
    path("", conversation.conversation, name="conversation"),
    path("messages/", conversation.send_message, name="send"),
    path("again/<int:turn_id>/", conversation.try_again, name="again"),
    path("older/", conversation.older, name="older"),
    path("updates/", conversation.updates, name="updates"),
    path("made/<int:turn_id>/", conversation.made, name="made"),
    path("read/", conversation.read, name="read"),
    path("title/", conversation.rename, name="rename"),
    path("markdown/", exports.as_markdown, name="as-markdown"),
    path("archive/", conversation.archive, name="archive"),
    path("unarchive/", conversation.unarchive, name="unarchive"),
    path("deleting/", conversation.about_deleting, name="about-deleting"),
    path("delete/", conversation.delete_conversation, name="delete"),
    path("appointments/", panel.panel, name="appointments"),
    path("appointments/<slug:kind>/<key:key>/", panel.explained, name="why"),
    path("appointments/<slug:kind>/<key:key>/switch/", panel.switch, name="switch"),
    path("appointments/<slug:kind>/<key:key>/delete/", panel.delete_appointment, name="delete-appointment"),
    path("runs/<key:run_id>/", panel.run_page, name="run"),
    path("runs/<key:run_id>/retry/", panel.retry_run, name="retry-run"),
    path("automations/new/", panel.new, name="new-automation"),
    path("automations/coming/", panel.coming, name="coming"),
    path("automations/<key:job_id>/", panel.change, name="change-automation"),
    path("routines/<key:job_id>/", panel.change_routine, name="change-routine"),
    path("automations/<key:job_id>/skip/", panel.skip_next, name="skip-slot"),
    path("automations/<key:job_id>/unskip/", panel.take_skip_back, name="unskip"),
    path("automations/<key:job_id>/pause/", pauses.pause, name="pause"),
    path("automations/<key:job_id>/move/", pauses.move, name="move"),
    path("pause/", pauses.pause_everything, name="pause-all"),
    path("messages/later/", panel.later, name="later"),
    path("messages/<key:message_id>/withdraw/", panel.withdraw, name="withdraw-message"),
]
of_agent = [
    path("", agent_page, name="agent"),
    path("model/", section_form("model", settings.change_model), name="agent-model"),
    path("model/choice/", section_form("model", picker.choose_model), name="choose-model"),
    path("model/provider/", section_form("model", picker.add_provider), name="add-provider"),
    path("zone/", section_form("model", settings.use_own_zone), name="agent-zone"),
    path("events/", section_form("hooks", settings.change_events_url), name="agent-events"),
    path("preferences/", section_form("memory", settings.change_preferences), name="agent-preferences"),
    path("connections/", section_form("connections", connections.add_connection), name="add-connection"),
    path("documents/<key:document>/", documents.document_page, name="document"),
    path("heartbeat/", section_form("heartbeat", settings.change_heartbeat), name="agent-heartbeat"),
    path("spending/", section_form("spending", settings.change_caps), name="agent-spending"),
    path("tools/", section_form("tools", tools.change_allowed), name="agent-tools"),
    path("mcp/", section_form("tools", tools.add_server), name="add-mcp-server"),
    path("mcp/change/", section_form("tools", tools.change_server), name="change-mcp-server"),
    path("mcp/delete/", section_form("tools", tools.delete_server), name="delete-mcp-server"),
    path("mcp/test/", section_form("tools", tools.try_server), name="test-mcp-server"),
    path(
        "channels/<uuid:session_id>/test/", section_form("channels", channels.send_test), name="test-channel"
    ),
    path("telegram/", section_form("telegram", channels.change_bot), name="agent-telegram"),
    path("telegram/code/", section_form("telegram", channels.make_code), name="telegram-code"),
    path(
        "telegram/chats/<int:chat_id>/disconnect/",
        section_form("telegram", channels.disconnect_chat),
        name="disconnect-telegram-chat",
    ),
]
of_connection = [
    path("", section_form("connections", connections.change_connection), name="change-connection"),
    path("delete/", section_form("connections", connections.delete_connection), name="delete-connection"),
    path("test/", section_form("connections", connections.try_connection), name="test-connection"),
]

urlpatterns = [
    path("", conversation.home, name="home"),
    path("sessions/", conversation.listing, name="conversations"),
    path("sessions/rendered/", conversation.rendered, name="rendered"),
    path("sessions/new/", conversation.begin_conversation, name="begin"),
    path("sessions/<uuid:session_id>/", include(of_conversation)),
    path("attachments/<uuid:attachment_id>/", messages.attachment, name="attachment"),
    path("turns/<int:turn_id>/stop/", conversation.stop_turn, name="stop"),
    path("turns/<int:turn_id>/outcome/", conversation.outcome, name="outcome"),
    path("questions/<key:question_id>/answer/", conversation.allow_or_refuse, name="answer-consent"),
    path("executions/<key:execution_id>/answer/", conversation.answer_plan, name="answer-plan"),
    path("upcoming/", upcoming.week, name="upcoming"),
    path("upcoming/pause/", pauses.pause_everything, name="pause-everything"),
    path("upcoming/pause/undo/", pauses.undo_pause, name="undo-pause"),
    path("calendar/<str:token>.ics", upcoming.calendar, name="calendar"),
    path("agents/", agent_list, name="agents"),
    path("agents/-/new/", make_agent, name="new-agent"),
    path("agents/-/tests/<key:message_id>/", channels.test_state, name="test-channel-state"),
    path("agents/<key:name>/", include(of_agent)),
    path("agents/<key:name>/connections/<key:connection>/", include(of_connection)),
    path("enter/<str:token>/", enter_by_link, name="enter"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("password/", password_reset.AskReset.as_view(), name="password-reset"),
    path("password/sent/", password_reset.ResetSent.as_view(), name="password-sent"),
    path("password/<str:uidb64>/<str:token>/", password_reset.ChooseNew.as_view(), name="password-new"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("account/", account.account, name="account"),
    path("account/zone/", account.zone_form, name="account-zone"),
    path("account/password/", account.password_form, name="account-password"),
    path("account/tokens/", account.make_token, name="account-tokens"),
    path("account/tokens/<slug:token_id>/revoke/", account.revoke_token, name="account-token-revoke"),
    path("account/export/", exports.export_all, name="export"),
    path("account/invitations/", invitations.invite, name="invite"),
    path(
        "account/invitations/<int:invitation_id>/revoke/",
        invitations.revoke_invitation,
        name="invitation-revoke",
    ),
    path("join/<str:token>/", invitations.join, name="join"),
    path("account/calendar/", account.change_calendar, name="account-calendar"),
    path("account/notifications/", account.change_notifications, name="account-notifications"),
    path("account/browsers/", notifications.add_browser, name="account-browser"),
    path(
        "account/browsers/<int:subscription_id>/remove/",
        notifications.remove_browser,
        name="account-browser-remove",
    ),
    path("manifest.webmanifest", notifications.manifest, name="manifest"),
    path("worker.js", notifications.worker, name="worker"),  # here, to serve all pages
]
