"""Each trust rule, violated one at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ductile.plugins import scan_roots
from tests.plugins.discovery import MakePlugin, find, get_loaded, get_reason


class TestTrust:
    """Each plugin violates exactly one rule."""

    def test_missing_entrypoint(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin(entrypoint=None)
        assert "run.py does not exist" in get_reason(find(root))

    def test_entrypoint_that_is_not_executable(self, root: Path, make_plugin: MakePlugin) -> None:
        (make_plugin() / "run.py").chmod(0o644)
        assert "is not executable; run: chmod +x" in get_reason(find(root))

    @pytest.mark.parametrize("kind", ["directory", "fifo"])
    def test_entrypoint_that_is_not_a_regular_file(
        self, root: Path, make_plugin: MakePlugin, kind: str
    ) -> None:
        entrypoint = make_plugin(entrypoint=None) / "run.py"
        if kind == "directory":
            entrypoint.mkdir(mode=0o755)
        else:
            os.mkfifo(entrypoint, 0o755)
        assert "is not a regular file" in get_reason(find(root))

    def test_entrypoint_that_is_a_socket(
        self, root: Path, make_plugin: MakePlugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(make_plugin(entrypoint=None))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("run.py")
            assert "cannot be read" in get_reason(find(root))

    def test_entrypoint_with_two_dots(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        text = (directory / "manifest.yaml").read_text()
        (directory / "manifest.yaml").write_text(text.replace("run.py", "../echo/run.py"))
        assert "must not contain '..'" in get_reason(find(root))

    @pytest.mark.parametrize("victim", [".", "run.py", "manifest.yaml"])
    def test_world_writable_file(self, root: Path, make_plugin: MakePlugin, victim: str) -> None:
        path = make_plugin() / victim
        path.chmod(path.stat().st_mode | 0o002)
        assert f"{path} is world-writable; run: chmod o-w {path}" in get_reason(find(root))

    def test_world_writable_directory_above_the_entrypoint(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        directory = make_plugin(entrypoint=None)
        (directory / "bin").mkdir()
        (directory / "bin").chmod(0o777)
        (directory / "bin" / "run").touch(mode=0o755)
        text = (directory / "manifest.yaml").read_text()
        (directory / "manifest.yaml").write_text(text.replace("run.py", "bin/run"))
        assert "bin is world-writable" in get_reason(find(root))

    def test_world_writable_root(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        root.chmod(0o1777)
        assert "is world-writable" in get_reason(find(root), str(root))

    def test_root_that_is_not_a_directory(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.touch()
        assert "is not a directory" in get_reason(find(path), str(path))

    def test_root_with_too_many_entries(
        self, root: Path, make_plugin: MakePlugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_plugin("a"), make_plugin("b")
        monkeypatch.setattr(scan_roots, "MAX_ENTRIES", 1)
        assert "more than 1 entries" in get_reason(find(root), str(root))

    def test_manifest_that_is_not_yaml(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin(manifest="a: [")
        assert "manifest.yaml:2:1: the file is not valid YAML" in get_reason(find(root))

    def test_manifest_that_is_a_directory(self, root: Path, make_plugin: MakePlugin) -> None:
        path = make_plugin() / "manifest.yaml"
        path.unlink()
        path.mkdir()
        assert "is not a regular file" in get_reason(find(root))

    def test_manifest_over_one_mebibyte(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin(extra="#" * 1024**2)
        assert "at most 1024 KiB" in get_reason(find(root))

    @pytest.mark.parametrize("victim", [".", "run.py", "manifest.yaml"])
    def test_unreadable_file(self, root: Path, make_plugin: MakePlugin, victim: str) -> None:
        path = make_plugin() / victim
        path.chmod(0o111 if victim == "run.py" else 0)
        if os.access(path, os.R_OK):
            pytest.skip("this user can read every file")
        text = get_reason(find(root))
        path.chmod(0o755)
        assert "Permission denied" in text

    @pytest.mark.parametrize(
        ("old", "new", "word"),
        [
            ("protocol: 2", "protocol: 3", "5:11: protocol: "),
            ("type: read", "type: run", "7:25: commands.poll.type: "),
        ],
    )
    def test_manifest_with_an_invalid_value(
        self, root: Path, make_plugin: MakePlugin, old: str, new: str, word: str
    ) -> None:
        path = make_plugin() / "manifest.yaml"
        path.write_text(path.read_text().replace(old, new))
        assert word in get_reason(find(root))


class TestSymlinks:
    @pytest.fixture(params=["directory", "run.py", "manifest.yaml"])
    def linked(
        self, request: pytest.FixtureRequest, make_plugin: MakePlugin
    ) -> Callable[..., None]:
        """Moves a file of the plugin elsewhere and leaves a symlink to it."""

        def link(to: Path) -> None:
            part = make_plugin()
            part = part if request.param == "directory" else part / request.param
            target = to / "moved"
            part.rename(target)
            part.symlink_to(target)

        return link

    def test_symlink_out_of_the_root_is_always_refused(
        self, root: Path, tmp_path: Path, linked: Callable[..., None]
    ) -> None:
        linked(tmp_path)
        assert "outside the root" in get_reason(find(root, allow_symlinks=True))

    def test_symlink_inside_the_root_is_refused_by_default(
        self, root: Path, linked: Callable[..., None]
    ) -> None:
        (root / ".store").mkdir(mode=0o755)
        linked(root / ".store")
        assert "or set service.allow_symlinks: true" in get_reason(find(root))

    def test_symlink_inside_the_root_can_be_allowed_with_a_warning(
        self, root: Path, linked: Callable[..., None]
    ) -> None:
        (root / ".store").mkdir(mode=0o755)
        linked(root / ".store")
        registry = find(root, allow_symlinks=True)
        assert "is a symlink to" in registry.warnings[0]
        assert get_loaded(registry).entrypoint.resolve() == get_loaded(registry).entrypoint

    def test_symlink_into_a_world_writable_directory_is_refused(
        self, root: Path, linked: Callable[..., None]
    ) -> None:
        (root / ".store").mkdir()
        (root / ".store").chmod(0o777)
        linked(root / ".store")
        assert "is world-writable" in get_reason(find(root, allow_symlinks=True))

    def test_dangling_entrypoint_is_refused(self, root: Path, make_plugin: MakePlugin) -> None:
        (make_plugin(entrypoint=None) / "run.py").symlink_to("gone")
        assert "does not exist" in get_reason(find(root, allow_symlinks=True))

    def test_entrypoint_that_points_to_itself_is_refused(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        (make_plugin(entrypoint=None) / "run.py").symlink_to("run.py")
        assert "cannot be resolved" in get_reason(find(root, allow_symlinks=True))

    def test_root_behind_a_symlink_is_refused_by_default(
        self, root: Path, tmp_path: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        link = tmp_path / "link"
        link.symlink_to(root)
        assert "service.allow_symlinks" in get_reason(find(link), str(link))

    def test_root_behind_a_symlink_can_be_allowed_with_a_warning(
        self, root: Path, tmp_path: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        (tmp_path / "link").symlink_to(root)
        registry = find(tmp_path / "link", allow_symlinks=True)
        assert get_loaded(registry).root == root
        assert "is a symlink to" in registry.warnings[0]
