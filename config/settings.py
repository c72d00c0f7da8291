"""Django's settings, all from `config.env`."""

import os
from datetime import timedelta
from typing import Any

from django.templatetags.static import static

from config import database, env, installation, logs

try:
    ENV = env.load(os.environ)
except env.EnvError as error:
    raise SystemExit(f"rondo: {error}") from None  # a one-line error in every process

# Read by the apps.
RONDO_COMMAND = installation.COMMAND
RONDO_MODEL = ENV.rondo_model
RONDO_MODELS = ENV.rondo_models
RONDO_PRICES = ENV.rondo_prices
RONDO_PLUGINS = ENV.rondo_plugins
RONDO_PREFLIGHT = ENV.rondo_flags["automations.preflight"]
RONDO_FETCH_URL = ENV.rondo_flags["tools.fetch_url"]
RONDO_HEARTBEAT_BROADCAST_SCOPE = ENV.rondo_flags["heartbeat.broadcast_scope"]
RONDO_HEARTBEAT_REALTIME_STATUS_HINT = ENV.rondo_flags["heartbeat.realtime_status_hint"]
RONDO_HEARTBEAT_ROUTINE_REFLECTION = ENV.rondo_flags["heartbeat.routine_reflection"]
RONDO_SCHEDULER_CRON_JOBS = ENV.rondo_flags["scheduler.cron_jobs"]
RONDO_MCP = ENV.rondo_flags["tools.mcp"]
RONDO_TRACES = ENV.rondo_traces
RONDO_SENTRY_DSN = ENV.rondo_sentry_dsn
RONDO_BEAT_PING_URL = ENV.rondo_beat_ping_url
RONDO_MCP_HOSTS = ENV.rondo_mcp_hosts
RONDO_CONNECTION_HOSTS = ENV.rondo_connection_hosts
RONDO_THIS_MACHINE = ENV.rondo_this_machine
RONDO_WEBHOOK_HOSTS = ENV.rondo_webhook_hosts
RONDO_DOORS = ENV.rondo_doors
RONDO_CORS_ORIGINS = ENV.rondo_cors_origins
RONDO_NOTIFY = ENV.rondo_notify
RONDO_TELEGRAM_URL = ENV.rondo_telegram_url
# for python-telegram-bot: times as its next version returns them; else it warns with each 429
os.environ.setdefault("PTB_TIMEDELTA", "true")
RONDO_MAIL_SERVER = ENV.email_url
DEFAULT_FROM_EMAIL = ENV.default_from_email
OPENAI_BASE_URL = ENV.openai_base_url
OPENAI_API_KEY = ENV.openai_api_key
DATABASE_LOCK_URL = ENV.database_lock_url or ENV.database_url
CELERY_BROKER_URL = ENV.celery_broker_url
TURN_SHARDS = ENV.turn_shards
TURN_QUEUES = ENV.turn_queues
ALL_QUEUES = env.all_queues(TURN_SHARDS)
RONDO_THROTTLE = ENV.rondo_throttle
RONDO_TURNS_PER_USER = ENV.rondo_turns_per_user
RONDO_WATCHERS = ENV.rondo_watchers
RONDO_WATCHER_TOKEN = ENV.rondo_watcher_token
RONDO_CONTEXT_TOKENS = ENV.rondo_context_tokens
RONDO_KEEP_TURNS_DAYS = RONDO_KEEP_RUNS_DAYS = ENV.rondo_keep_days
RONDO_KEEP_DELIVERIES_DAYS = RONDO_KEEP_SCHEDULED_DAYS = ENV.rondo_keep_days

# Bounds and times: docs/configuration.md has their meanings. A settings module of your own can change them.
AUTOMATION_MAX_WAIT = 600
RONDO_SWEEP_SECONDS = 5.0
RONDO_HEARTBEAT_SECONDS = 5.0
RONDO_WORKER_LOST_SECONDS = 15.0
RONDO_TOOL_GRACE_SECONDS = 30
RONDO_MAINTENANCE_SECONDS = 3600
RONDO_MODEL_SILENCE_SECONDS = 120.0
RONDO_REPLY_CHARS = 400_000
RONDO_WINDOW_MESSAGES = 40
RONDO_DELIVERY_SECONDS = 10
RONDO_DELIVERY_RETRY_SECONDS = (5, 30, 120, 600, 1800, 3600, 7200, 21600, 43200)
RONDO_DATABASE_SECONDS = 15
RONDO_CONNECTIONS = 5000
RONDO_CONNECTIONS_PER_ADDRESS = 500
RONDO_STREAMS_PER_USER = 100
RONDO_TURN_SECONDS = 14_400
RONDO_AGENTS_PER_USER = 1000
RONDO_SESSIONS_PER_USER = 100_000
RONDO_AUTOMATIONS_PER_USER = 1000
RONDO_MEGABYTES_PER_USER = 20_000
RONDO_DOCS_URL = ""
RONDO_QUESTION_HOURS = 24
RONDO_KEEP_EVENTS_DAYS = 1
RONDO_KEEP_JOB_SESSIONS_DAYS = 14
RONDO_KEEP_JOURNALS_DAYS = 7
RONDO_KEEP_MAILBOX_DAYS = 30
RONDO_KEEP_RUNS_PER_JOB = 1000
RONDO_KEEP_TURNS_PER_SESSION = 10_000

SECRET_KEY = ENV.secret_key
SECRET_KEY_FALLBACKS = list(ENV.secret_key_fallbacks)
DEBUG = ENV.debug
ALLOWED_HOSTS = list(ENV.allowed_hosts)
CSRF_FAILURE_VIEW = "interfaces.http.errors.pages.csrf_failure"
CSRF_TRUSTED_ORIGINS = list(ENV.csrf_trusted_origins)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENV.https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if ENV.https else None
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if ENV.https else 0
# the proxy redirects to HTTPS; subdomains and browsers' preload lists are a matter of the domain, not of this server
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "django.contrib.admin.apps.SimpleAdminConfig",  # config.urls loads the admin pages
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "axes",
    "sessions_app",
    "automations",
    "interfaces",
    "config",  # last: its plugins may use all that the other apps register
]

MIDDLEWARE = [
    "interfaces.http.server.headers.add_headers",
    "django.middleware.security.SecurityMiddleware",
    "interfaces.http.errors.problems.api_problems",
    "interfaces.http.errors.pages.PageErrors",
    "interfaces.http.server.headers.CompressPages",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "interfaces.http.errors.pages.limit_pages",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",
]

VERSION = installation.VERSION  # of the server, for clients
ROOT_URLCONF = "config.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# another address for locks means that this one goes through a pooler
_IS_DIRECT = ENV.database_url == DATABASE_LOCK_URL
DATABASES = {"default": database.database_settings(ENV.database_url, ENV.db_pool_size, direct=_IS_DIRECT)}

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [installation.ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["interfaces.web.formats", "interfaces.web.cures"],
        },
    },
]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
PASSWORD_RESET_TIMEOUT = 3600  # seconds that a link by mail works
LOGIN_URL = LOGOUT_REDIRECT_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"  # after the sign-in page was opened directly

# django-axes counts failures per account and address; interfaces.http.sign_in limits attempts per address.
AUTHENTICATION_BACKENDS = ["interfaces.http.sign_in.Backend"]
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
# otherwise repeated attempts would lock an account for ever
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "interfaces.http.sign_in.address_of"
AXES_USERNAME_CALLABLE = "interfaces.http.sign_in.account_of"
AXES_LOCKOUT_CALLABLE = "interfaces.http.sign_in.sign_in_refusal"
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
AXES_SENSITIVE_PARAMETERS = ["username"]  # people type passwords there by mistake; keep them out of logs

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
FORMAT_MODULE_PATH = "config.formats"

STATIC_URL = "static/"
STATIC_ROOT = ENV.static_root or None
WHITENOISE_USE_FINDERS = not ENV.static_root  # without collected files, serve those of the packages
WHITENOISE_IMMUTABLE_FILE_TEST = r"/inter-[\d.]+\.woff2$"  # its name has its version: browsers keep it

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "interfaces.http.auth.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "interfaces.http.auth.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["interfaces.http.throttle.Throttle"],
    "NUM_PROXIES": 0,  # uvicorn already replaces the address of a trusted proxy by the client's
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["interfaces.http.strict_json.StrictJSONParser"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is not part of the API
    "EXCEPTION_HANDLER": "interfaces.http.errors.problems.problem_of",
    "URL_FORMAT_OVERRIDE": None,
    "DEFAULT_SCHEMA_CLASS": "interfaces.http.schema.openapi.Schema",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Rondo",
    "VERSION": installation.VERSION,
    "DESCRIPTION": "LLM agent sessions that keep their appointments. Every answer names the version of the API in"
    " `Rondo-Version`; a request may name the version that it expects, too.",
    "CONTACT": {"name": "The Rondo authors"},
    "LICENSE": {"name": "MIT", "identifier": "MIT"},
    "OAS_VERSION": "3.1.0",
    "SERVERS": [{"url": "/", "description": "This server."}],
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["interfaces.http.watchers.IsUserOrWatcher"],
    "SERVE_AUTHENTICATION": [
        "interfaces.http.watchers.WatcherAuthentication",
        "interfaces.http.auth.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "interfaces.http.schema.openapi.complete",
    ],
    "ENUM_NAME_OVERRIDES": {
        "AutomationMode": "automations.models.ExecutionMode",
        "AutomationSource": "automations.models.Source",
        "AutomationState": "automations.selectors.STATES",
        "ConsentState": "sessions_app.models.ConsentState",
        "DeliveryState": "sessions_app.models.DeliveryState",
        "MailState": "interfaces.api.sessions.sessions.MAIL_STATES",
        "RoutineMode": "interfaces.api.automations.routines.MODES",
        "RoutineSource": "interfaces.api.automations.routines.SOURCES",
        "RunState": "automations.models.RunState",
        "SessionState": "interfaces.api.sessions.sessions.SESSION_STATES",
        "TurnKind": "sessions_app.models.TurnKind",
        "TurnState": "sessions_app.models.TurnState",
    },
}

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Rondo",
    "SITE_HEADER": "Rondo",
    "SITE_SUBHEADER": "All times are in UTC",
    "SITE_ICON": lambda _request: static("rondo/icon.svg"),
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda _request: static("rondo/icon.svg")}
    ],
    "STYLES": [lambda _request: static("rondo/admin.css")],
    "SCRIPTS": [lambda _request: static("rondo/admin.js")],
    # warm grey and teal, as on the pages for people: 600 is text on white, 500 is text on dark
    "COLORS": {
        "base": {
            "50": "#faf9f7",
            "100": "#f4f2ee",
            "200": "#e5e1d8",
            "300": "#d3cec3",
            "400": "#a8a498",
            "500": "#716d65",
            "600": "#57534c",
            "700": "#45413b",
            "800": "#2d2b27",
            "900": "#1f1e1b",
            "950": "#171614",
        },
        "primary": {
            "50": "#f0fdfa",
            "100": "#ccfbf1",
            "200": "#99f6e4",
            "300": "#5eead4",
            "400": "#2dd4bf",
            "500": "#5cc2b4",
            "600": "#0f766e",
            "700": "#115e59",
            "800": "#134e4a",
            "900": "#123f3c",
            "950": "#042f2e",
        },
    },
    "DASHBOARD_CALLBACK": "config.operations.dashboard.dashboard",
    "SIDEBAR": {"navigation": "config.operations.dashboard.sidebar"},
}

DATA_UPLOAD_MAX_MEMORY_SIZE = None  # interfaces.http.server.bodies has limited each body
FILE_UPLOAD_HANDLERS = [
    "django.core.files.uploadhandler.MemoryFileUploadHandler"
]  # the body is in memory anyway
FILE_UPLOAD_MAX_MEMORY_SIZE = 9 * 1024 * 1024  # of a body, as there
DATA_UPLOAD_MAX_NUMBER_FILES = 20

LOG_FORMAT = ENV.log_format
LOGGING = logs.logging_config(ENV.log_level, LOG_FORMAT)
logs.configure()
