"""Names of time zones, and the zone of each user, which is kept on the account."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

from sessions_app.exceptions import BadInput
from sessions_app.models import UserSettings

_NO_ZONES = {"Factory", "localtime"}  # names in the zone database that are no zones
_RENAMED = {  # names that browsers still use
    "Africa/Asmera": "Africa/Asmara",
    "America/Buenos_Aires": "America/Argentina/Buenos_Aires",
    "America/Catamarca": "America/Argentina/Catamarca",
    "America/Cordoba": "America/Argentina/Cordoba",
    "America/Coral_Harbour": "America/Atikokan",
    "America/Godthab": "America/Nuuk",
    "America/Indianapolis": "America/Indiana/Indianapolis",
    "America/Jujuy": "America/Argentina/Jujuy",
    "America/Louisville": "America/Kentucky/Louisville",
    "America/Mendoza": "America/Argentina/Mendoza",
    "Asia/Calcutta": "Asia/Kolkata",
    "Asia/Katmandu": "Asia/Kathmandu",
    "Asia/Rangoon": "Asia/Yangon",
    "Asia/Saigon": "Asia/Ho_Chi_Minh",
    "Atlantic/Faeroe": "Atlantic/Faroe",
    "Europe/Kiev": "Europe/Kyiv",
    "Pacific/Enderbury": "Pacific/Kanton",
    "Pacific/Ponape": "Pacific/Pohnpei",
    "Pacific/Truk": "Pacific/Chuuk",
}


@lru_cache(maxsize=1)
def known_zones() -> frozenset[str]:
    """The names of the time zones that an agent or a user may have."""
    return frozenset(available_timezones() - _NO_ZONES)


def zone_problem(value: object) -> str:
    """Why this is no time zone; empty if it is one."""
    if value in known_zones():
        return ""
    return f"unknown time zone {str(value)[:64]!r}; use an IANA name such as 'Europe/Berlin'"


def zone_of(user_id: int) -> str:
    """The user's time zone; empty while it is not known."""
    return UserSettings.objects.filter(pk=user_id).values_list("timezone", flat=True).first() or ""


def set_zone(user_id: int, name: str) -> None:
    """Keep a user's time zone; empty: forget it. BadInput."""
    UserSettings.objects.update_or_create(user_id=user_id, defaults={"timezone": name and _checked(name)})


def set_first_zone(user_id: int, name: str) -> str:
    """Keep the zone of a user who has none, and return it; otherwise return an empty text. BadInput."""
    zone = _checked(name)
    UserSettings.objects.get_or_create(user_id=user_id)
    return zone if UserSettings.objects.filter(pk=user_id, timezone="").update(timezone=zone) else ""


def _checked(name: str) -> str:
    if problem := zone_problem(name):
        raise BadInput(problem, code="unknown_timezone")
    return _RENAMED.get(name, name)
