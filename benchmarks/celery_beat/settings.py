"""Settings of a Django project that has django-celery-beat and nothing else; the same pool as Rondo's."""

import os

from config.database import database

SECRET_KEY = os.environ["SECRET_KEY"]
INSTALLED_APPS = ["django_celery_beat"]
DATABASES = {"default": database(os.environ["DATABASE_URL"], 10)}
USE_TZ = True
TIME_ZONE = "UTC"
