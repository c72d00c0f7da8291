from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from config.operations import doctor, metrics
from interfaces.http import sign_in
from interfaces.http.errors.codes import ERRORS_PAGE
from interfaces.http.schema.views import DocsView, ErrorsPage, SchemaView
from interfaces.protocols import PROTOCOLS

admin.autodiscover()

handler400 = "interfaces.http.errors.problems.bad_request"
handler403 = "interfaces.http.errors.problems.permission_denied"
handler404 = "interfaces.http.errors.problems.not_found"
handler500 = "interfaces.http.errors.problems.server_error"

urlpatterns = [
    path("", include("interfaces.web.urls")),
    path("healthz", doctor.healthz, name="healthz"),
    path("readyz", doctor.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("admin/password_change/", admin.site.admin_view(sign_in.change_password, cacheable=True)),
    path("admin/", admin.site.urls),
    path("api/", include("interfaces.api.urls")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path(ERRORS_PAGE[1:], ErrorsPage.as_view(), name="errors"),
    path("api/docs/", DocsView.as_view(url_name="schema"), name="docs"),
    *(path(PROTOCOLS[name].prefix, include(PROTOCOLS[name].urls)) for name in settings.RONDO_DOORS),
]
