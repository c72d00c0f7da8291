"""Formats of times in the admin, in place of those of Django's locale."""

DATETIME_FORMAT = "Y-m-d H:i:s"
