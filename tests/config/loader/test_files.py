"""Files that lie, never end, or are none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ductile.config.loader.files import MAX_BYTES
from ductile.errors import Severity
from tests.config.conftest import Home, only, place


def test_a_fifo_is_refused_and_not_waited_for(home: Home) -> None:
    home.write("include: [pipe.yaml]")
    os.mkfifo(home.path / "pipe.yaml")
    assert "not a regular file" in only(home.refused()).message


def test_a_device_is_refused(home: Home) -> None:
    assert "not a regular file" in only(home.refused("include: [/dev/zero]")).message


def test_a_huge_file_is_refused(home: Home) -> None:
    home.write("include: [big.yaml]")
    with (home.path / "big.yaml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert only(home.refused()).allowed == "16 MiB"


def test_a_directory_named_like_a_file_is_refused(home: Home) -> None:
    home.write("include: [d]")
    (home.path / "d" / "x.yaml").mkdir(parents=True)
    assert "not a regular file" in only(home.refused()).message


def test_undecodable_bytes_have_their_place(home: Home) -> None:
    (home.path / "config.yaml").write_bytes("service:\n  né: ".encode() + b"\xff\n")
    problem = only(home.refused())
    assert place(problem) == ("config.yaml", 2, 7)
    assert problem.found == "byte 0xff"


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe"])
def test_a_byte_order_mark_is_refused(home: Home, mark: bytes) -> None:
    (home.path / "config.yaml").write_bytes(mark + b"service: {}\n")
    assert "byte order mark" in only(home.refused()).message


def test_a_root_that_is_no_mapping_is_refused(home: Home) -> None:
    assert "is a mapping" in only(home.refused("- a\n- b\n")).message


def test_an_empty_file_is_a_configuration(home: Home) -> None:
    assert home.load("# nothing yet\n").settings.service.name == "ductile"


def test_windows_line_ends_are_no_problem(home: Home) -> None:
    assert home.load("service:\r\n  name: x\r\n").settings.service.name == "x"


def test_a_missing_config_is_told_by_its_path(home: Home) -> None:
    assert "config.yaml" in only(home.refused()).message


def test_a_path_with_a_nul_is_no_path(home: Home) -> None:
    assert "must be a path" in only(home.refused('include: ["a\\0b"]')).message


@pytest.mark.parametrize("name", ["config.yaml/a.yaml", "a" * 5000])
def test_a_path_that_the_system_refuses_is_a_problem(home: Home, name: str) -> None:
    assert "cannot" in only(home.refused(f"include: [{name}]")).message


def test_a_file_that_may_not_be_read_is_a_problem(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "")

    monkeypatch.setattr("ductile.config.loader.files.os.open", refuse)
    assert "Permission denied" in only(home.refused("{}")).message


class TestSymlinks:
    @pytest.fixture
    def linked(self, home: Home) -> Home:
        home.write({"config.yaml": "include: [link.yaml]\n", "real.txt": "service: {name: real}"})
        (home.path / "link.yaml").symlink_to(home.path / "real.txt")
        return home

    def test_they_are_refused(self, linked: Home) -> None:
        problem = only(linked.refused())
        assert "link.yaml is a symlink" in problem.message
        assert problem.allowed == "service.allow_symlinks: true"

    def test_allowed_they_are_followed_with_a_warning(self, linked: Home) -> None:
        loaded = linked.load("include: [link.yaml]\nservice: {allow_symlinks: true}")
        assert loaded.settings.service.name == "real"
        warning = only(list(loaded.warnings))
        assert warning.severity is Severity.WARNING
        assert "is a symlink" in warning.message

    def test_a_target_outside_is_refused_either_way(self, home: Home, tmp_path: Path) -> None:
        (tmp_path / "outside.yaml").write_text("service: {name: evil}")
        home.write("include: [link.yaml]\nservice: {allow_symlinks: true}")
        (home.path / "link.yaml").symlink_to(tmp_path / "outside.yaml")
        assert "leads out of" in only(home.refused()).message

    def test_a_linked_directory_counts(self, home: Home) -> None:
        home.write({"config.yaml": "include: [d/a.yaml]", "real/a.yaml": "{}"})
        (home.path / "d").symlink_to("real")
        assert "d is a symlink" in only(home.refused()).message

    def test_a_linked_configuration_directory_counts(self, home: Home, tmp_path: Path) -> None:
        home.write("{}")
        (tmp_path / "alias").symlink_to(home.path)
        assert "alias is a symlink" in only(Home(tmp_path / "alias").refused()).message

    def test_a_link_above_the_configuration_directory_counts(
        self, home: Home, tmp_path: Path
    ) -> None:
        home.write("{}")
        (tmp_path / "alias").symlink_to(tmp_path)
        through = Home(tmp_path / "alias" / home.path.name)
        problem = only(through.refused())
        assert problem.message == f"{tmp_path}/alias is a symlink"
        warning = only(list(through.load("service: {allow_symlinks: true}").warnings))
        assert warning.message == problem.message

    def test_a_link_above_a_file_elsewhere_counts(self, home: Home, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "a.yaml").write_text("{}")
        (tmp_path / "alias").symlink_to("elsewhere")
        problem = only(home.refused(f"include: [{tmp_path}/alias/a.yaml]"))
        assert "alias is a symlink" in problem.message

    def test_a_linked_seal_counts(self, home: Home) -> None:
        home.write("{}")
        home.lock().rename(home.path / "real")
        (home.path / ".checksums").symlink_to("real")
        problem = only(home.refused())
        assert problem.message == f"{home.path}/.checksums is a symlink"
        home.write("service: {allow_symlinks: true}")
        (home.path / ".checksums").unlink()
        home.lock().rename(home.path / "real")
        (home.path / ".checksums").symlink_to("real")
        assert only(list(home.load().warnings)).message == problem.message

    def test_a_circle_of_links_is_a_problem(self, home: Home) -> None:
        home.write("include: [a.yaml]")
        (home.path / "a.yaml").symlink_to("a.yaml")
        assert any("a.yaml" in problem.message for problem in home.refused())
