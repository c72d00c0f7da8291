"""Addresses of the pages of appointments."""

from django.urls import path

from interfaces.web.appointments import appointments, edit, upcoming

_SESSION = "sessions/<uuid:session_id>"
urlpatterns = [
    path("upcoming/", upcoming.week, name="upcoming"),
    path(f"{_SESSION}/appointments/", appointments.panel, name="appointments"),
    path(f"{_SESSION}/appointments/<slug:kind>/<key:key>/", appointments.explained, name="why"),
    path(f"{_SESSION}/appointments/<slug:kind>/<key:key>/switch/", appointments.switch, name="switch"),
    path(
        f"{_SESSION}/appointments/<slug:kind>/<key:key>/delete/",
        appointments.delete_appointment,
        name="delete-appointment",
    ),
    path(f"{_SESSION}/runs/<key:run_id>/", appointments.run_page, name="run"),
    path(f"{_SESSION}/automations/new/", edit.new, name="new-automation"),
    path(f"{_SESSION}/automations/coming/", edit.coming, name="coming"),
    path(f"{_SESSION}/automations/<key:job_id>/", edit.change, name="change-automation"),
    path(f"{_SESSION}/routines/<key:job_id>/", edit.change_routine, name="change-routine"),
    path(f"{_SESSION}/automations/<key:job_id>/skip/", appointments.skip_next, name="skip-slot"),
    path(f"{_SESSION}/messages/later/", edit.later, name="later"),
    path(f"{_SESSION}/messages/<key:message_id>/withdraw/", appointments.withdraw, name="withdraw-message"),
]
