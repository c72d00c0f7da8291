"""URL patterns under /api/."""

from django.urls import path

from interfaces.api.automations import automations as views
from interfaces.api.automations import messages, routines

urlpatterns = [
    path("sessions/<uuid:session_id>/automations/", views.AutomationList.as_view()),
    path("automations/", views.AutomationsOfUser.as_view()),
    path("automations/<slug:job_id>/", views.AutomationDetail.as_view()),
    path("automations/<slug:job_id>/explain/", views.AutomationExplanation.as_view()),
    path("automations/<slug:job_id>/skip/", views.AutomationSkip.as_view()),
    path("automations/<slug:job_id>/runs/", views.RunList.as_view()),
    path("sessions/<uuid:session_id>/scheduled-messages/", messages.ScheduledMessageList.as_view()),
    path("scheduled-messages/<slug:message_id>/", messages.ScheduledMessageDetail.as_view()),
    path("agents/<str:name>/routines/", routines.RoutineList.as_view()),
    path("routines/<slug:routine_id>/", routines.RoutineDetail.as_view()),
    path("routines/<slug:routine_id>/runs/", routines.RoutineRuns.as_view()),
    path("runs/", views.RunsOfUser.as_view()),
    path("runs/<str:run_id>/", views.RunDetail.as_view()),
    path("schedules/preview/", views.SchedulePreview.as_view()),
]
