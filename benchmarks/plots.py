"""Small SVG plots of figures, in a grey that reads on light and on dark pages."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.report import Figure, number

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 640, 210, 80, 34, 34
INK, SHADES = "#808080", ("#3b82c4", "#d97706", "#2e9e6b")
FIRED = re.compile(r"fire ([\d,]+) due of ([\d,]+) jobs, database")
RATE = re.compile(r"no-op tasks|(turns, instant model|automations' turns)( of 20 users)?")
WAITED = "message to first model request"
BAR, PLOT_HEIGHT = 26, 220


def write_plots(folder: Path, figures: Sequence[Figure]) -> None:
    """Write the plots whose figures were measured: `rates.svg`, `firing.svg` and `latency.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (("rates", _rates), ("firing", _firing), ("latency", _latency)):
        if drawn := draw(figures):
            (folder / f"{name}.svg").write_text(drawn)


def _rates(figures: Iterable[Figure]) -> str:
    """A bar for each rate, no-ops first."""
    bars = [figure for figure in figures if RATE.fullmatch(figure.name)]
    if not bars:
        return ""
    longest, parts = max(bar.value for bar in bars), []
    for place, bar in enumerate(bars):
        y, width = TOP + place * BAR, (WIDTH - LEFT - RIGHT) * bar.value / longest
        parts.append(_text(LEFT - 8, y + 15, bar.name, "end"))
        parts.append(
            f'<rect x="{LEFT}" y="{y + 3}" width="{width:.0f}" height="{BAR - 8}" fill="{SHADES[place > 0]}"/>'
        )
        parts.append(_text(LEFT + width + 6, y + 15, f"{number(bar.value)}/s"))
    return _svg("Turns per second beside tasks that do nothing", TOP + len(bars) * BAR + 8, parts)


def _firing(figures: Iterable[Figure]) -> str:
    """Milliseconds by the number of jobs, a line for each number that is due; both axes logarithmic."""
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for figure in figures:
        if match := FIRED.fullmatch(figure.name):
            lines[f"{match[1]} due"].append((float(match[2].replace(",", "")), figure.value))
    return _lines("Database time of firing, ms, by the number of jobs", lines, log=True)


def _latency(figures: Iterable[Figure]) -> str:
    """Which part of the messages waited at most so long."""
    shapes = [figure.shape for figure in figures if figure.name == WAITED and figure.shape]
    lines = {"": [(value, float(part)) for part, value in enumerate(shapes[0], 1)]} if shapes else {}
    return _lines("Messages, %, whose model was asked within so many ms at half load", lines, log=False)


def _lines(title: str, lines: dict[str, list[tuple[float, float]]], *, log: bool) -> str:
    if not lines:
        return ""
    points = [point for line in lines.values() for point in line]
    across = _axis([x for x, _ in points], 60, WIDTH - RIGHT, log=log)
    up = _axis([y for _, y in points], TOP + PLOT_HEIGHT, TOP, log=log)
    parts = [
        f'<path d="M60 {TOP}V{TOP + PLOT_HEIGHT}H{WIDTH - RIGHT}" fill="none" stroke="{INK}"/>',
        *(_text(across[1](x), TOP + PLOT_HEIGHT + 18, number(x), "middle") for x in across[0]),
        *(_text(52, up[1](y) + 4, number(y), "end") for y in up[0]),
    ]
    for (name, line), shade in zip(lines.items(), SHADES, strict=False):
        path = " ".join(f"{across[1](x):.1f},{up[1](y):.1f}" for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{shade}" stroke-width="2"/>')
        x, y = max(line)
        parts.append(_text(across[1](x) + 6, up[1](y) + 4, name))
    return _svg(title, TOP + PLOT_HEIGHT + BOTTOM, parts)


def _axis(
    values: Sequence[float], begin: float, end: float, *, log: bool
) -> tuple[list[float], Callable[[float], float]]:
    """The marks of an axis, and where a value lies on it."""
    if log:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        high = max(high, low + 1)
        return [
            10.0**n for n in range(low, high + 1)
        ], lambda value: begin + (end - begin) * (math.log10(value) - low) / (high - low)
    step = 10.0 ** math.floor(math.log10(max(values)))
    step = step if max(values) / step >= 3 else step / 5
    most = math.ceil(max(values) / step)
    return [n * step for n in range(most + 1)], lambda value: begin + (end - begin) * value / (most * step)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, height: float, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"'
        f' font-family="sans-serif" font-size="12" fill="{INK}">'
    )
    shown = f'<text x="8" y="18" font-size="14">{escape(title)}</text>'
    return "\n".join([head, f"<title>{escape(title)}</title>", shown, *parts, "</svg>\n"])
