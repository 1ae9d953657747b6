"""Files that are missing, too large, not regular, not text, or symlinks."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ductile.config.loader.files import MAX_BYTES, replace
from ductile.errors import Severity
from tests.config.conftest import ConfigDir, location, only


def test_fifo_is_rejected_without_waiting(config_dir: ConfigDir) -> None:
    config_dir.write("include: [pipe.yaml]")
    os.mkfifo(config_dir.path / "pipe.yaml")
    assert "not a regular file" in only(config_dir.load_errors()).message


def test_device_is_rejected(config_dir: ConfigDir) -> None:
    assert "not a regular file" in only(config_dir.load_errors("include: [/dev/zero]")).message


def test_file_over_the_size_limit_is_rejected(config_dir: ConfigDir) -> None:
    config_dir.write("include: [big.yaml]")
    with (config_dir.path / "big.yaml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert only(config_dir.load_errors()).allowed == "at most 16 MiB"


def test_directory_with_the_name_of_a_file_is_rejected(config_dir: ConfigDir) -> None:
    config_dir.write("include: [d]")
    (config_dir.path / "d" / "x.yaml").mkdir(parents=True)
    assert "not a regular file" in only(config_dir.load_errors()).message


def test_invalid_utf_8_is_reported_with_its_location(config_dir: ConfigDir) -> None:
    (config_dir.path / "config.yaml").write_bytes("service:\n  né: ".encode() + b"\xff\n")
    problem = only(config_dir.load_errors())
    assert location(problem) == ("config.yaml", 2, 7)
    assert problem.found == "byte 0xff"


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xff\xfe"])
def test_byte_order_mark_is_rejected(config_dir: ConfigDir, mark: bytes) -> None:
    (config_dir.path / "config.yaml").write_bytes(mark + b"service: {}\n")
    assert "byte order mark" in only(config_dir.load_errors()).message


def test_file_that_is_not_a_mapping_is_rejected(config_dir: ConfigDir) -> None:
    assert "must be a mapping" in only(config_dir.load_errors("- a\n- b\n")).message


def test_empty_file_is_a_valid_configuration(config_dir: ConfigDir) -> None:
    assert config_dir.load("# nothing yet\n").settings.service.name == "ductile"


def test_crlf_line_endings_are_accepted(config_dir: ConfigDir) -> None:
    assert config_dir.load("service:\r\n  name: x\r\n").settings.service.name == "x"


def test_missing_config_is_reported_by_its_path(config_dir: ConfigDir) -> None:
    assert "config.yaml" in only(config_dir.load_errors()).message


def test_path_with_a_nul_is_rejected(config_dir: ConfigDir) -> None:
    assert "must be a path" in only(config_dir.load_errors('include: ["a\\0b"]')).message


@pytest.mark.parametrize("name", ["config.yaml/a.yaml", "a" * 5000])
def test_path_that_the_system_rejects_is_reported(config_dir: ConfigDir, name: str) -> None:
    assert "cannot" in only(config_dir.load_errors(f"include: [{name}]")).message


def test_unreadable_file_is_reported(
    config_dir: ConfigDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object) -> int:
        raise PermissionError(13, "")

    monkeypatch.setattr("ductile.config.loader.files.os.open", deny)
    assert "Permission denied" in only(config_dir.load_errors("{}")).message


class TestSymlinks:
    @pytest.fixture
    def linked(self, config_dir: ConfigDir) -> ConfigDir:
        config_dir.write(
            {"config.yaml": "include: [link.yaml]\n", "real.txt": "service: {name: real}"}
        )
        (config_dir.path / "link.yaml").symlink_to(config_dir.path / "real.txt")
        return config_dir

    def test_symlink_is_rejected_by_default(self, linked: ConfigDir) -> None:
        problem = only(linked.load_errors())
        assert "link.yaml is a symlink" in problem.message
        assert "set service.allow_symlinks: true" in problem.message

    def test_allowed_symlink_is_followed_with_a_warning(self, linked: ConfigDir) -> None:
        loaded = linked.load("include: [link.yaml]\nservice: {allow_symlinks: true}")
        assert loaded.settings.service.name == "real"
        warning = only(list(loaded.warnings))
        assert warning.severity is Severity.WARNING
        assert "is a symlink" in warning.message

    def test_symlink_out_of_the_directory_is_always_rejected(
        self, config_dir: ConfigDir, tmp_path: Path
    ) -> None:
        (tmp_path / "outside.yaml").write_text("service: {name: evil}")
        config_dir.write("include: [link.yaml]\nservice: {allow_symlinks: true}")
        (config_dir.path / "link.yaml").symlink_to(tmp_path / "outside.yaml")
        assert "is a symlink out of" in only(config_dir.load_errors()).message

    def test_symlinked_directory_is_reported(self, config_dir: ConfigDir) -> None:
        config_dir.write({"config.yaml": "include: [d/a.yaml]", "real/a.yaml": "{}"})
        (config_dir.path / "d").symlink_to("real")
        assert "d is a symlink" in only(config_dir.load_errors()).message

    def test_symlinked_configuration_directory_is_reported(
        self, config_dir: ConfigDir, tmp_path: Path
    ) -> None:
        config_dir.write("{}")
        (tmp_path / "alias").symlink_to(config_dir.path)
        assert "alias is a symlink" in only(ConfigDir(tmp_path / "alias").load_errors()).message

    def test_symlink_above_the_configuration_directory_is_reported(
        self, config_dir: ConfigDir, tmp_path: Path
    ) -> None:
        config_dir.write("{}")
        (tmp_path / "alias").symlink_to(tmp_path)
        through = ConfigDir(tmp_path / "alias" / config_dir.path.name)
        problem = only(through.load_errors())
        assert problem.message.startswith(f"{tmp_path}/alias is a symlink;")
        warning = only(list(through.load("service: {allow_symlinks: true}").warnings))
        assert warning.message == f"{tmp_path}/alias is a symlink"

    def test_symlink_above_an_included_file_elsewhere_is_reported(
        self, config_dir: ConfigDir, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "a.yaml").write_text("{}")
        (tmp_path / "alias").symlink_to("elsewhere")
        problem = only(config_dir.load_errors(f"include: [{tmp_path}/alias/a.yaml]"))
        assert "alias is a symlink" in problem.message

    def test_symlinked_seal_is_reported(self, config_dir: ConfigDir) -> None:
        config_dir.write("{}")
        config_dir.lock().rename(config_dir.path / "real")
        (config_dir.path / ".checksums").symlink_to("real")
        problem = only(config_dir.load_errors())
        assert problem.message.startswith(f"{config_dir.path}/.checksums is a symlink;")
        config_dir.write("service: {allow_symlinks: true}")
        (config_dir.path / ".checksums").unlink()
        config_dir.lock().rename(config_dir.path / "real")
        (config_dir.path / ".checksums").symlink_to("real")
        assert only(list(config_dir.load().warnings)).message == (
            f"{config_dir.path}/.checksums is a symlink"
        )

    def test_circular_symlink_is_reported(self, config_dir: ConfigDir) -> None:
        config_dir.write("include: [a.yaml]")
        (config_dir.path / "a.yaml").symlink_to("a.yaml")
        assert any("a.yaml" in problem.message for problem in config_dir.load_errors())


def write_as(user: int, path: Path) -> int:
    """The exit code of a process of this user that replaces a file."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            replace(path, b"new", like=path.stat())
            code = 0
        except PermissionError:
            code = 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("mode", "code"), [(0o644, 0), (0o600, 0), (0o640, 2), (0o604, 2)])
def test_file_of_a_foreign_group_is_replaced_where_nobody_gets_more_rights(
    mode: int, code: int
) -> None:
    user = 65534
    with TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder, "config.yaml")
        path.write_text("old")
        for one in (path, path.parent):
            os.chown(one, user, 0)
        path.chmod(mode)
        assert write_as(user, path) == code
        assert path.read_text() == ("old" if code else "new")
        assert path.stat().st_mode & 0o777 == mode
