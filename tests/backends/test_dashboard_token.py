"""Ray's token: nobody else reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.backends.ray_tune import dashboard


def test_one_that_is_missing_is_made_for_this_user_alone(tmp_path: Path) -> None:
    dashboard.protect_token(tmp_path / ".ray")
    (made,) = (tmp_path / ".ray").iterdir()
    assert made.name == "auth_token"
    assert made.stat().st_mode & 0o777 == 0o600
    assert len(text := made.read_text()) == 64
    dashboard.protect_token(tmp_path / ".ray")
    assert made.read_text() == text


def test_one_that_others_can_read_is_closed_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "auth_token"
    path.write_text("mine")
    path.chmod(0o644)
    dashboard.protect_token(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "mine"


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what a test sets is undone
        monkeypatch.delenv(name)


def test_where_the_home_cannot_be_written_to_the_token_is_one_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    dashboard.protect_token(tmp_path / "file" / ".ray")
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    dashboard.protect_token(tmp_path / ".ray")
    assert os.environ["RAY_AUTH_TOKEN"] == token
    assert not (tmp_path / ".ray").exists()
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert "RAY_AUTH_TOKEN in the environment" in dashboard.describe_address("127.0.0.1:8265")


def test_where_nobody_knows_the_home_the_token_is_one_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    dashboard.protect_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64


@pytest.mark.parametrize(("mode", "told"), [("token", True), ("disabled", False), (None, False)])
def test_the_line_about_the_dashboard_says_how_to_come_in(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, told: bool
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode) if mode else monkeypatch.delenv(
        "RAY_AUTH_MODE", raising=False
    )
    line = dashboard.describe_address("127.0.0.1:8265")
    assert line.startswith("Ray dashboard: http://127.0.0.1:8265")
    assert line.endswith("ray get-auth-token)") == told
