"""Zone data that are replaced under a running process (rule 4.6)."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from automations.exceptions import ScheduleError
from automations.schedules import zone_files
from automations.schedules.schedule import CronSchedule
from automations.schedules.zone_files import fingerprint, load_zone, zone_or_utc
from tests.automations.schedules.zone_folder import ZoneFolder, tzif, zone_folder

pytestmark = pytest.mark.rule("4.6")

NAME = "Test/Moving"
NOW = datetime(2027, 1, 1, tzinfo=UTC)
NINE = CronSchedule(expr="0 9 * * *", timezone=NAME)


@pytest.fixture
def zones(tmp_path: Path) -> Iterator[ZoneFolder]:
    with zone_folder(tmp_path) as folder:
        yield folder


def test_a_file_that_is_replaced_is_read_anew(zones: ZoneFolder) -> None:
    zones.write(NAME, "AAA-1")
    assert NINE.next(NOW) == NOW.replace(hour=8)
    first = fingerprint(NAME)
    zones.write(NAME, "AAA-3")
    assert NINE.next(NOW) == NOW.replace(hour=6)
    assert fingerprint(NAME) not in (None, first)
    zones.write(NAME, "AAA-1")
    assert (NINE.next(NOW), fingerprint(NAME)) == (NOW.replace(hour=8), first)


def test_a_file_that_is_not_replaced_is_not_read_again(zones: ZoneFolder) -> None:
    zones.write(NAME, "AAA-1")
    assert load_zone(NAME) is load_zone(NAME)


def test_changes_of_the_clocks_are_those_of_the_new_data(zones: ZoneFolder) -> None:
    zones.write(NAME, "AAA-1BBB,M3.5.0,M10.5.0/3")
    summer = datetime(2027, 7, 1, tzinfo=UTC)
    assert NINE.next(summer) == summer.replace(hour=7)
    zones.write(NAME, "AAA-1")
    assert NINE.next(summer) == summer.replace(hour=8)


@pytest.mark.parametrize("cut", [0, 3, 50, 60, -1])
def test_a_truncated_file_is_rejected_and_the_previous_data_holds(zones: ZoneFolder, cut: int) -> None:
    """The library itself would read on for ever behind a file without its last line break."""
    zones.write_bytes(NAME, tzif("AAA-1")[:cut])
    with pytest.raises(ScheduleError, match="There is no time zone 'Test/Moving'"):
        load_zone(NAME)
    assert fingerprint(NAME) is None
    zones.write(NAME, "AAA-1")
    assert NINE.next(NOW) == NOW.replace(hour=8)
    zones.write_bytes(NAME, tzif("AAA-3")[:cut])
    assert NINE.next(NOW) == NOW.replace(hour=8)
    assert fingerprint(NAME) is None


def test_a_file_that_is_away_for_a_while_changes_nothing(zones: ZoneFolder) -> None:
    zones.write(NAME, "AAA-1")
    load_zone(NAME)
    zones.remove(NAME)
    assert NINE.next(NOW) == NOW.replace(hour=8)
    assert fingerprint(NAME) is None
    zone_files._loaded.clear()  # another process
    with pytest.raises(ScheduleError):
        load_zone(NAME)
    assert zone_or_utc(NAME).key == "UTC"


def test_the_librarys_own_folders_and_its_package_are_found(zones: ZoneFolder) -> None:
    assert fingerprint("Europe/Berlin") is not None
    with zone_folder(zones.path):
        import zoneinfo

        zoneinfo.reset_tzpath(to=[])
        assert fingerprint("Europe/Berlin") is not None
        assert CronSchedule(expr="0 9 * * *", timezone="Europe/Berlin").next(NOW) == NOW.replace(hour=8)
    for name in ("Europe", "../etc/passwd", "/etc/localtime", "localtime", "right/UTC", "", "x" * 65):
        assert fingerprint(name) is None
