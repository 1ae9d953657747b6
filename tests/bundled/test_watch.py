"""The plugins `file-watch` and `folder-watch`."""

from __future__ import annotations

import json
import os
import re
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.bundled.bundled_site import PLUGINS, BundledSite, list_events
from tests.bundled.load_module import load_module


class Watched:
    """A plugin that watches a folder, and its state between polls."""

    def __init__(self, site: BundledSite, plugin: str, **config: Any) -> None:
        self.site, self.plugin = site, plugin
        self.folder = site.folder / "watched"
        self.folder.mkdir()
        self.state: dict[str, Any] = {}
        self.configure(**config)

    def configure(self, **config: Any) -> None:
        files = [str(self.folder / name) for name in ("a", "b")]
        where = {"files": files} if self.plugin == "file-watch" else {"folder": str(self.folder)}
        self.site.use(self.plugin, {**where, "settle": 0, **config})

    def write(self, name: str, text: str = "x", *, age: float = 0) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        modified = time.time() - age
        os.utime(path, (modified, modified))
        return path

    def poll(self) -> dict[str, Any]:
        """The response; in this process, unless the plugin was mutated."""
        if self.site.root is PLUGINS:
            response = self._poll_in_process()
        else:
            response = self.site.direct(self.plugin, "poll", state=self.state).response
        self.state |= response.get("state_updates", {})
        return response

    def _poll_in_process(self) -> dict[str, Any]:
        module = load_module(self.plugin, "run")
        config = self.site.settings["plugins"][self.plugin]["config"]
        state = json.loads(json.dumps(self.state))
        try:
            response = module.poll(module.Request({"config": config, "state": state})).encode()
        except module.Failure as failure:
            return {"status": "error", "error": str(failure), "retry": failure.retry}
        found: dict[str, Any] = json.loads(response)
        return found

    def poll_events(self) -> list[tuple[str, str]]:
        """The emitted events, as type and name."""
        response = self.poll()
        assert response["status"] == "ok", response
        return [(event["type"], event["payload"]["name"]) for event in response.get("events", [])]


@pytest.fixture(params=["file-watch", "folder-watch"])
def watched(request: pytest.FixtureRequest, site: BundledSite) -> Watched:
    return Watched(site, request.param)


@pytest.fixture
def tree(site: BundledSite) -> Watched:
    return Watched(site, "folder-watch")


# Both


def test_first_poll_emits_nothing(watched: Watched) -> None:
    watched.write("a")
    assert watched.poll_events() == []
    assert watched.poll_events() == []


def test_existing_files_are_emitted_if_configured(watched: Watched) -> None:
    watched.configure(report_existing=True)
    watched.write("a")
    assert watched.poll_events() == [("file.created", "a")]
    assert watched.poll_events() == []


def test_created_modified_and_deleted_files(watched: Watched) -> None:
    assert watched.poll_events() == []
    watched.write("a", age=100)
    assert watched.poll_events() == [("file.created", "a")]
    watched.write("a", age=50)
    assert watched.poll_events() == [("file.modified", "a")]
    watched.write("a", "longer", age=50)
    assert watched.poll_events() == [("file.modified", "a")]
    (watched.folder / "a").unlink()
    assert watched.poll_events() == [("file.deleted", "a")]
    assert watched.poll_events() == []


def test_replaced_file_is_modified(watched: Watched) -> None:
    first = watched.write("a", age=100)
    watched.poll_events()
    fresh = watched.write("new", age=0)
    os.utime(fresh, ns=(first.stat().st_mtime_ns,) * 2)
    fresh.rename(first)
    assert watched.poll_events() == [("file.modified", "a")]


def test_renamed_file_is_detected(watched: Watched) -> None:
    watched.write("a", age=100)
    watched.poll_events()
    (watched.folder / "a").rename(watched.folder / "b")
    [event] = watched.poll()["events"]
    assert event["type"] == "file.renamed"
    assert event["payload"]["path"] == str(watched.folder / "b")
    assert event["payload"]["previous_path"] == str(watched.folder / "a")
    assert watched.poll_events() == []


def test_unsettled_file_is_not_emitted(watched: Watched) -> None:
    watched.configure(settle="1h")
    watched.poll_events()
    for text in ("h", "ha", "hal", "half"):
        watched.write("a", text)
        assert watched.poll_events() == []
    assert watched.poll_events() == [("file.created", "a")]
    watched.write("a", "more")
    assert watched.poll_events() == []
    watched.write("a", "more", age=7200)
    assert watched.poll_events() == [("file.modified", "a")]
    watched.write("a", "future", age=-7200)
    assert watched.poll_events() == []
    assert watched.poll_events() == [("file.modified", "a")]


def test_file_deleted_before_it_settles_is_not_emitted(watched: Watched) -> None:
    watched.configure(settle="1h")
    watched.poll_events()
    watched.write("a").unlink()
    watched.write("b")
    assert watched.poll_events() == []
    (watched.folder / "b").unlink()
    assert watched.poll_events() == []


def test_content_hash_ignores_changed_times(watched: Watched) -> None:
    watched.configure(content_hash=True)
    watched.write("a", "same", age=100)
    assert watched.poll_events() == []
    watched.write("a", "same", age=50)
    assert watched.poll_events() == []
    watched.write("a", "else", age=50)
    [event] = watched.poll()["events"]
    assert len(event["payload"]["sha256"]) == 64
    watched.configure(content_hash=True, max_hash_size=2)
    watched.write("a", "else", age=10)
    assert watched.poll_events() == [("file.modified", "a")]


def test_only_regular_files_are_watched(watched: Watched) -> None:
    watched.configure(content_hash=True)
    watched.poll_events()
    os.mkfifo(watched.folder / "a")
    (watched.folder / "b").mkdir()
    assert watched.poll_events() == []


def test_payload_of_an_event(watched: Watched) -> None:
    watched.poll_events()
    path = watched.write("a", "four", age=100)
    [event] = watched.poll()["events"]
    payload = event["payload"]
    assert payload["path"] == str(path)
    assert payload["size"] == 4
    assert payload["message"] == f"created: {path}"
    assert payload["modified_at"].endswith("Z")


def test_change_is_emitted_once_through_a_gateway(watched: Watched) -> None:
    site = watched.site
    with site.running() as running:
        running.run(watched.plugin)
        watched.write("a")
        for _ in range(3):
            assert running.run(watched.plugin)["status"] == "succeeded"
        events = list_events(running, watched.plugin)
    assert [event["type"] for event in events] == ["file.created"]


# file-watch


def test_file_added_to_the_configuration_is_not_created(site: BundledSite) -> None:
    watched = Watched(site, "file-watch")
    watched.write("a")
    watched.poll_events()
    watched.write("c")
    watched.configure(files=[str(watched.folder / name) for name in ("b", "c")])
    assert watched.poll_events() == []
    watched.write("b")
    assert watched.poll_events() == [("file.created", "b")]


def test_symlink_is_followed_if_configured(site: BundledSite) -> None:
    watched = Watched(site, "file-watch")
    target = watched.write("target", age=100)
    (watched.folder / "a").symlink_to(target)
    assert watched.poll_events() == []
    watched.configure(follow_symlinks=True)
    watched.state = {}
    watched.poll_events()
    watched.write("target", "new")
    assert watched.poll_events() == [("file.modified", "a")]


@pytest.mark.parametrize(
    "config",
    [{"files": []}, {"files": ["relative"]}, {"files": 5}, {"settle": "soon"}, {"settle": -1}],
)
def test_invalid_settings_of_file_watch_are_rejected(
    site: BundledSite, config: dict[str, Any]
) -> None:
    watched = Watched(site, "file-watch", **config)
    assert watched.poll()["retry"] is False


def test_health_of_file_watch(site: BundledSite) -> None:
    watched = Watched(site, "file-watch")
    assert site.direct("file-watch", "health").response["result"] == "2 files"
    watched.configure(files=["/no/such/folder/file"])
    assert site.direct("file-watch", "health").response["status"] == "error"


# folder-watch


def test_include_and_exclude_patterns(tree: Watched) -> None:
    tree.configure(include=["*.csv", "in/**/*.json"], exclude=["skip", "*.tmp.csv"])
    tree.poll_events()
    for name in ("1.csv", "d/2.csv", "in/3.json", "in/d/e/4.json", "5.json", "skip/6.csv",
                 "d/skip/7.csv", "8.tmp.csv", ".hidden.csv", ".git/9.csv"):  # fmt: skip
        tree.write(name, age=10)
    assert [name for _, name in tree.poll_events()] == ["1.csv", "2.csv", "3.json", "4.json"]


def test_hidden_and_recursive_settings(tree: Watched) -> None:
    tree.configure(hidden=True, recursive=False)
    tree.poll_events()
    tree.write(".x", age=10)
    tree.write("d/y", age=10)
    assert [name for _, name in tree.poll_events()] == [".x"]


def test_changed_patterns_start_a_new_snapshot(tree: Watched) -> None:
    tree.write("a")
    tree.poll_events()
    tree.configure(exclude=["a"])
    assert tree.poll_events() == []
    tree.configure()
    assert tree.poll_events() == []


def test_symlinks_are_not_followed_out_of_the_folder(tree: Watched) -> None:
    outside = tree.site.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    tree.poll_events()
    (tree.folder / "folder").symlink_to(outside)
    (tree.folder / "file").symlink_to(outside / "secret")
    assert tree.poll_events() == []


def test_folder_replaced_by_a_symlink_is_not_entered(tree: Watched) -> None:
    outside = tree.site.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    tree.write("d/mine")
    tree.poll_events()
    tree.site.mutate(
        "folder-watch/walk.py",
        "            descriptor = os.open(name, _DIRECTORY, dir_fd=parent)\n",
        "            os.rename(name, name + '2', src_dir_fd=parent, dst_dir_fd=parent)\n"
        f"            os.symlink({str(outside)!r}, name, dir_fd=parent)\n"
        "            descriptor = os.open(name, _DIRECTORY, dir_fd=parent)\n",
    )
    assert "secret" not in str(tree.poll().get("events"))


def test_number_of_entries_is_limited(tree: Watched) -> None:
    tree.configure(max_entries=5)
    for number in range(6):
        tree.write(str(number))
    response = tree.poll()
    assert "more than 5 entries" in response["error"]
    assert response["retry"] is False


def test_changes_over_the_limit_are_left_for_the_next_poll(tree: Watched) -> None:
    tree.configure(max_events=4)
    tree.poll_events()
    for number in range(10):
        tree.write(str(number), age=10)
    polls = [[name for _, name in tree.poll_events()] for _ in range(4)]
    assert [len(names) for names in polls] == [4, 4, 2, 0]
    assert sorted(name for names in polls for name in names) == sorted(map(str, range(10)))


def test_names_that_are_not_utf_8(tree: Watched) -> None:
    tree.poll_events()
    raw = os.fsencode(tree.folder) + b"/caf\xe9\n"
    with open(raw, "w") as file:
        file.write("x")
    [event] = tree.poll()["events"]
    assert event["payload"]["relative"] == "caf\\xe9\n"
    assert event["payload"]["path_base64"]
    assert tree.poll_events() == []
    os.unlink(raw)
    assert tree.poll_events() == [("file.deleted", "caf\\xe9\n")]


def test_unreadable_files_are_not_deleted(tree: Watched) -> None:
    tree.write("d/e/a")
    tree.poll_events()
    opened = "os.open(name, _DIRECTORY, dir_fd=parent)"
    tree.site.mutate("folder-watch/walk.py", f"descriptor = {opened}", "raise PermissionError")
    response = tree.poll()
    assert "events" not in response
    assert response["logs"] == [{"level": "warn", "message": "d cannot be read and is skipped"}]
    tree.site.mutate("folder-watch/walk.py", "raise PermissionError", f"descriptor = {opened}")
    assert tree.poll_events() == []


def test_missing_folder_is_an_error_and_not_a_deletion(tree: Watched) -> None:
    tree.write("a")
    tree.poll_events()
    tree.folder.rename(tree.folder.with_name("away"))
    response = tree.poll()
    assert response["status"] == "error"
    tree.folder.mkdir()
    tree.state["device"] += 1
    assert "check that it is mounted" in tree.poll()["error"]
    tree.state["device"] -= 1
    assert tree.poll_events() == [("file.deleted", "a")]


def test_state_of_many_files_is_compressed(tree: Watched) -> None:
    for number in range(1500):
        (tree.folder / f"some-longer-name-{number}.json").touch()
    assert tree.poll_events() == []
    assert len(tree.state["snapshot"]) < 50_000
    tree.write("one", age=10)
    assert tree.poll_events() == [("file.created", "one")]


def test_state_over_the_limit_is_rejected(tree: Watched) -> None:
    tree.site.mutate("folder-watch/run.py", "MAX_STATE = 900_000", "MAX_STATE = 100")
    tree.write("a")
    assert "exceeds the limit" in tree.poll()["error"]


@pytest.mark.parametrize(
    "config",
    [
        {"folder": "relative"},
        {"include": ["/abs"]},
        {"exclude": ["../x"]},
        {"max_entries": 0},
        {"recursive": "yes"},
    ],
)
def test_invalid_settings_of_folder_watch_are_rejected(
    site: BundledSite, config: dict[str, Any]
) -> None:
    watched = Watched(site, "folder-watch", **config)
    assert watched.poll()["retry"] is False


def test_health_of_folder_watch(tree: Watched) -> None:
    tree.write("a")
    assert (
        tree.site.direct("folder-watch", "health").response["result"] == "1 entries in the folder"
    )


@settings(deadline=None)
@given(pattern=st.text("abc*?!^\\.", min_size=1), name=st.text("abc.^\\]", min_size=1))
def test_patterns_within_a_name_agree_with_fnmatch(pattern: str, name: str) -> None:
    pattern = re.sub(r"\*+", "*", pattern)
    assume(pattern != "..")
    found = load_module("folder-watch", "walk").Patterns([pattern]).match(name)
    assert found is fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.c", "d/x.c", True),
        ("d/*.c", "d/x.c", True),
        ("d/*.c", "e/d/x.c", False),
        ("d/*.c", "d/e/x.c", False),
        ("**/x", "x", True),
        ("a/**/x", "a/x", True),
        ("a/**/x", "a/b/c/x", True),
        ("a/**", "a/b/c", True),
        ("[ab].c", "a.c", True),
        ("[!ab].c", "a.c", False),
        ("[!ab].c", "z.c", True),
        ("[a-c]?", "b1", True),
        ("d/", "x/d", True),
        ("a.c", "abc", False),
    ],
)
def test_patterns(pattern: str, path: str, matches: bool) -> None:
    assert load_module("folder-watch", "walk").Patterns([pattern]).match(path) is matches
