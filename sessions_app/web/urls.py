"""Addresses of the pages for people."""

from django.urls import path

from sessions_app.web import actions, chat

urlpatterns = [
    path("", chat.home, name="home"),
    path("sessions/", chat.listing, name="conversations"),
    path("sessions/new/", actions.begin, name="begin"),
    path("sessions/<uuid:session_id>/", chat.conversation, name="conversation"),
    path("sessions/<uuid:session_id>/messages/", actions.send, name="send"),
    path("sessions/<uuid:session_id>/older/", chat.older, name="older"),
    path("sessions/<uuid:session_id>/updates/", chat.updates, name="updates"),
    path("sessions/<uuid:session_id>/read/", chat.read, name="read"),
    path("sessions/<uuid:session_id>/title/", actions.rename, name="rename"),
    path("sessions/<uuid:session_id>/archive/", actions.put_away, name="archive"),
    path("sessions/<uuid:session_id>/deleting/", chat.about_deleting, name="about-deleting"),
    path("sessions/<uuid:session_id>/delete/", actions.delete, name="delete"),
    path("turns/<int:turn_id>/stop/", actions.stop, name="stop"),
    path("questions/<str:question_id>/answer/", actions.answer_consent, name="answer-consent"),
    path("executions/<str:execution_id>/answer/", actions.answer_plan, name="answer-plan"),
]
