"""django-celery-beat in a process and a database of its own, measured by `benchmarks.ticks` beside Rondo."""
