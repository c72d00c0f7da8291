"""Addresses of the pages for people."""

from django.contrib.auth.views import LogoutView
from django.urls import include, path, register_converter

from interfaces.web import actions, chat
from interfaces.web.account import pages as account
from interfaces.web.account.enter import enter_by_link


class Key:
    """A key in an address: up to 200 characters without a slash or a control character, which databases refuse."""

    regex = r"[^/\x00-\x1f\x7f]{1,200}"

    def to_python(self, value: str) -> str:
        """The text."""
        return value

    def to_url(self, value: str) -> str:
        """The text."""
        return value


register_converter(Key, "key")

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
    path("", include("interfaces.web.appointments.urls")),
    path("agents/", include("interfaces.web.agent.urls")),
    path("enter/<str:token>/", enter_by_link, name="enter"),
    path("sign-in/", account.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("account/", account.account, name="account"),
    path("account/password/", account.password_form, name="account-password"),
    path("account/tokens/", account.make_token, name="account-tokens"),
    path("account/tokens/<slug:token_id>/revoke/", account.revoke_token, name="account-token-revoke"),
]
