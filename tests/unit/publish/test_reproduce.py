"""Other surroundings for the same build."""

import os

from kbuild.publish.reproduce import RunnerWithEnvironment
from kbuild.system.processes import LocalRunner

SHOW = ("sh", "-c", 'echo "$TZ $KEPT"')


def test_some_variables_change_and_others_stay(monkeypatch):
    monkeypatch.setenv("KEPT", "own")
    runner = RunnerWithEnvironment(LocalRunner(), {"TZ": "Asia/Tokyo"})
    assert runner.run(SHOW).output == "Asia/Tokyo own\n"
    given = {"PATH": os.environ["PATH"], "TZ": "UTC", "KEPT": "given"}
    assert runner.run(SHOW, env=given).output == "Asia/Tokyo given\n"
