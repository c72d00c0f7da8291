"""What `make` says when it cannot go on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.up import ROOT

# a Python for which pip finds no release that takes it, and says so
OLD = """#!/bin/sh
case "$*" in
    "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python";;
    -V) echo "Python 3.11.7";;
    *) echo "ERROR: Ignored the following versions: 6.0 Requires-Python >=3.12; 6.0.1 Requires-Python >=3.12"
       echo "ERROR: No matching distribution found for Django==6.0.*"
       exit 1;;
esac >&2
"""


def test_another_django_names_the_python_that_it_needs_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python3.11"
    old.write_text(OLD)
    old.chmod(0o755)
    given = [f"DJANGO={tmp_path / 'django'}", f"PYTHON={old}", "VERSION=6.0"]
    command = ["make", "--silent", "test-django", *given]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    ours, *of_make = done.stderr.splitlines()
    assert ours.startswith(f"Django 6.0 needs Python >=3.12; {old} is Python 3.11.7. ")
    assert "PYTHON=python3.13" in ours
    assert [line for line in of_make if "ERROR" in line] == []
