"""The plots of `make bench`."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.plots import write_plots
from benchmarks.report import Figure

SVG = "{http://www.w3.org/2000/svg}"


def drawn(path: Path, tag: str) -> list[ET.Element]:
    """The elements of this name in an SVG file."""
    return list(ET.fromstring(path.read_text()).iter(SVG + tag))


def test_each_rate_has_a_bar_in_proportion(tmp_path: Path) -> None:
    rates = {"no-op tasks": 400.0, "turns, instant model": 100.0, "automations' turns of 20 users": 50.0}
    write_plots(tmp_path, [Figure(name=name, value=rate, unit="/s") for name, rate in rates.items()])
    widths = [float(bar.attrib["width"]) for bar in drawn(tmp_path / "rates.svg", "rect")]
    assert [round(widths[0] / width) for width in widths] == [1, 4, 8]


def test_firing_has_a_line_for_each_number_due(tmp_path: Path) -> None:
    figures = [
        Figure(name=f"fire {due} due of {jobs:,} jobs, database", value=due * 2.0, unit="ms")
        for due in (1, 100)
        for jobs in (1_000, 100_000)
    ]
    write_plots(tmp_path, figures)
    assert len(drawn(tmp_path / "firing.svg", "polyline")) == 2
    assert {"1 due", "100 due", "100,000"} <= {each.text for each in drawn(tmp_path / "firing.svg", "text")}


def test_latencies_are_drawn_as_their_distribution(tmp_path: Path) -> None:
    shape = tuple(float(value) for value in range(10, 109))
    write_plots(tmp_path, [Figure(name="message to first model request", value=59.0, unit="ms", shape=shape)])
    [line] = drawn(tmp_path / "latency.svg", "polyline")
    assert len(line.attrib["points"].split()) == 99


def test_only_measured_figures_are_drawn(tmp_path: Path) -> None:
    write_plots(tmp_path, [Figure(name="memory", value=1.0)])
    assert list(tmp_path.iterdir()) == []
