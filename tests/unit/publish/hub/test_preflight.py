from __future__ import annotations

from kbuild.publish.hub.preflight import UploadObstacle, UploadRefusedError


def test_what_is_said_of_several_variants_is_said_once():
    reasons = [
        UploadObstacle("torch212-cpu", "no commit", "use git"),
        UploadObstacle("token", "is missing"),
        UploadObstacle("torch213-cpu", "no commit", "use git"),
        UploadObstacle("torch214-cpu", "no commit", "use git"),
    ]
    error = UploadRefusedError("nothing was sent:", reasons)
    assert str(error) == (
        "nothing was sent:\n"
        "  torch212-cpu and 2 more: no commit\n"
        "    hint: use git\n"
        "  token: is missing"
    )
    assert len(error.to_json()["reasons"]) == 4
