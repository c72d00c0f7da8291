"""The admin. Its pages change rows through the functions that the API uses; all other fields are read-only."""

from interfaces.admin import (  # noqa: F401 - each registers its pages
    agents,
    internals,
    jobs,
    runs,
    sessions,
    users,
)
