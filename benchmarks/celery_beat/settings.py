"""Settings of a Django project with only django-celery-beat, and with the same pool as Rondo."""

import os

from config.database import database_settings

SECRET_KEY = os.environ["SECRET_KEY"]
INSTALLED_APPS = ["django_celery_beat"]
DATABASES = {"default": database_settings(os.environ["DATABASE_URL"], 10)}
USE_TZ = True
TIME_ZONE = "UTC"
