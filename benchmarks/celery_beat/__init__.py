"""django-celery-beat in a separate process and database; `benchmarks.ticks` compares Rondo with it."""
