from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from config.accounts import pages
from config.accounts.enter import enter_by_link
from config.doors import DOORS
from config.http import sign_in
from config.http.codes import ERRORS_PAGE
from config.http.reference.errors import ErrorsPage
from config.http.schema import SchemaView
from config.operations import health, metrics
from sessions_app.api.query import ChecksQuery, Parameter

admin.autodiscover()


class DocsView(ChecksQuery, SpectacularSwaggerSplitView):
    """The schema as pages (Swagger UI). `?script` answers their script, which is a file of its own for the CSP."""

    takes = {"get": (Parameter(name="script"),)}


handler400 = "config.http.problems.bad_request"
handler403 = "config.http.problems.permission_denied"
handler404 = "config.http.problems.not_found"
handler500 = "config.http.problems.server_error"

urlpatterns = [
    path("", include("sessions_app.web.urls")),
    path("", include("automations.web.urls")),
    path("", include("automations.web.agent_urls")),
    path("enter/<str:token>/", enter_by_link, name="enter"),
    path("sign-in/", pages.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
    path("account/", pages.account, name="account"),
    path("account/password/", pages.password_form, name="account-password"),
    path("account/tokens/", pages.make_token, name="account-tokens"),
    path("account/tokens/<slug:token_id>/revoke/", pages.revoke_token, name="account-token-revoke"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("admin/password_change/", admin.site.admin_view(sign_in.change_password, cacheable=True)),
    path("admin/", admin.site.urls),
    path("api/", include("sessions_app.api.urls")),
    path("api/", include("automations.api.urls")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path(ERRORS_PAGE[1:], ErrorsPage.as_view(), name="errors"),
    path("api/docs/", DocsView.as_view(url_name="schema"), name="docs"),
    *(path(DOORS[name].prefix, include(DOORS[name].urls)) for name in settings.RONDO_DOORS),
]
