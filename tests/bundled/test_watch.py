"""The plugins `file-watch` and `folder-watch`: what they tell, once, and what they do not."""

from __future__ import annotations

import os
import re
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.bundled.house import BundledSite, emitted
from tests.bundled.inside import inside


class Watched:
    """A plugin over a folder, run by hand, with the state that it keeps."""

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
        moment = time.time() - age
        os.utime(path, (moment, moment))
        return path

    def answer(self) -> dict[str, Any]:
        done = self.site.direct(self.plugin, "poll", state=self.state).answer
        self.state |= done.get("state_updates", {})
        return done

    def look(self) -> list[tuple[str, str]]:
        """What is told, as kind and name."""
        answer = self.answer()
        assert answer["status"] == "ok", answer
        return [(event["type"], event["payload"]["name"]) for event in answer.get("events", [])]


@pytest.fixture(params=["file-watch", "folder-watch"])
def watched(request: pytest.FixtureRequest, site: BundledSite) -> Watched:
    return Watched(site, request.param)


@pytest.fixture
def tree(site: BundledSite) -> Watched:
    return Watched(site, "folder-watch")


# Both


def test_the_first_look_tells_nothing(watched: Watched) -> None:
    watched.write("a")
    assert watched.look() == []
    assert watched.look() == []


def test_what_is_there_can_be_told_too(watched: Watched) -> None:
    watched.configure(report_existing=True)
    watched.write("a")
    assert watched.look() == [("file.created", "a")]
    assert watched.look() == []


def test_files_come_change_and_go(watched: Watched) -> None:
    assert watched.look() == []
    watched.write("a", age=100)
    assert watched.look() == [("file.created", "a")]
    watched.write("a", age=50)
    assert watched.look() == [("file.modified", "a")]
    watched.write("a", "longer", age=50)
    assert watched.look() == [("file.modified", "a")]
    (watched.folder / "a").unlink()
    assert watched.look() == [("file.deleted", "a")]
    assert watched.look() == []


def test_another_file_in_its_place_is_a_change(watched: Watched) -> None:
    first = watched.write("a", age=100)
    watched.look()
    fresh = watched.write("new", age=0)
    os.utime(fresh, ns=(first.stat().st_mtime_ns,) * 2)
    fresh.rename(first)
    assert watched.look() == [("file.modified", "a")]


def test_a_file_that_becomes_another_was_renamed(watched: Watched) -> None:
    watched.write("a", age=100)
    watched.look()
    (watched.folder / "a").rename(watched.folder / "b")
    [event] = watched.answer()["events"]
    assert event["type"] == "file.renamed"
    assert event["payload"]["path"] == str(watched.folder / "b")
    assert event["payload"]["previous_path"] == str(watched.folder / "a")
    assert watched.look() == []


def test_half_a_file_is_no_news(watched: Watched) -> None:
    watched.configure(settle="1h")
    watched.look()
    for text in ("h", "ha", "hal", "half"):
        watched.write("a", text)
        assert watched.look() == []
    assert watched.look() == [("file.created", "a")]
    watched.write("a", "more")
    assert watched.look() == []
    watched.write("a", "more", age=7200)
    assert watched.look() == [("file.modified", "a")]
    watched.write("a", "future", age=-7200)
    assert watched.look() == []
    assert watched.look() == [("file.modified", "a")]


def test_a_file_that_goes_before_it_has_settled_is_no_news(watched: Watched) -> None:
    watched.configure(settle="1h")
    watched.look()
    watched.write("a").unlink()
    watched.write("b")
    assert watched.look() == []
    (watched.folder / "b").unlink()
    assert watched.look() == []


def test_with_hashes_only_content_counts(watched: Watched) -> None:
    watched.configure(content_hash=True)
    watched.write("a", "same", age=100)
    assert watched.look() == []
    watched.write("a", "same", age=50)
    assert watched.look() == []
    watched.write("a", "else", age=50)
    [event] = watched.answer()["events"]
    assert len(event["payload"]["sha256"]) == 64
    watched.configure(content_hash=True, max_hash_size=2)
    watched.write("a", "else", age=10)
    assert watched.look() == [("file.modified", "a")]


def test_only_regular_files_count(watched: Watched) -> None:
    watched.configure(content_hash=True)
    watched.look()
    os.mkfifo(watched.folder / "a")
    (watched.folder / "b").mkdir()
    assert watched.look() == []


def test_a_payload_tells_what_there_is_to_know(watched: Watched) -> None:
    watched.look()
    path = watched.write("a", "four", age=100)
    [event] = watched.answer()["events"]
    payload = event["payload"]
    assert payload["path"] == str(path)
    assert payload["size"] == 4
    assert payload["message"] == f"created: {path}"
    assert payload["modified_at"].endswith("Z")


def test_through_a_gateway_each_change_is_told_once(watched: Watched) -> None:
    site = watched.site
    with site.running() as house:
        house.run(watched.plugin)
        watched.write("a")
        for _ in range(3):
            assert house.run(watched.plugin)["status"] == "succeeded"
        events = emitted(house, watched.plugin)
    assert [event["type"] for event in events] == ["file.created"]


# Named files


def test_a_file_that_is_named_later_is_not_new(site: BundledSite) -> None:
    watched = Watched(site, "file-watch")
    watched.write("a")
    watched.look()
    watched.write("c")
    watched.configure(files=[str(watched.folder / name) for name in ("b", "c")])
    assert watched.look() == []
    watched.write("b")
    assert watched.look() == [("file.created", "b")]


def test_a_symlink_is_looked_at_itself_or_followed(site: BundledSite) -> None:
    watched = Watched(site, "file-watch")
    target = watched.write("target", age=100)
    (watched.folder / "a").symlink_to(target)
    assert watched.look() == []
    watched.configure(follow_symlinks=True)
    watched.state = {}
    watched.look()
    watched.write("target", "new")
    assert watched.look() == [("file.modified", "a")]


@pytest.mark.parametrize(
    "config",
    [{"files": []}, {"files": ["relative"]}, {"files": 5}, {"settle": "soon"}, {"settle": -1}],
)
def test_a_config_of_file_watch_that_cannot_work(site: BundledSite, config: dict[str, Any]) -> None:
    watched = Watched(site, "file-watch", **config)
    assert site.direct(watched.plugin, "poll").code == 78


def test_health_of_file_watch(site: BundledSite) -> None:
    watched = Watched(site, "file-watch")
    assert site.direct("file-watch", "health").answer["result"] == "2 files"
    watched.configure(files=["/no/such/folder/file"])
    assert site.direct("file-watch", "health").answer["status"] == "error"


# Folders


def test_a_tree_with_patterns(tree: Watched) -> None:
    tree.configure(include=["*.csv", "in/**/*.json"], exclude=["skip", "*.tmp.csv"])
    tree.look()
    for name in ("1.csv", "d/2.csv", "in/3.json", "in/d/e/4.json", "5.json", "skip/6.csv",
                 "d/skip/7.csv", "8.tmp.csv", ".hidden.csv", ".git/9.csv"):  # fmt: skip
        tree.write(name, age=10)
    assert [name for _, name in tree.look()] == ["1.csv", "2.csv", "3.json", "4.json"]


def test_hidden_names_and_one_level(tree: Watched) -> None:
    tree.configure(hidden=True, recursive=False)
    tree.look()
    tree.write(".x", age=10)
    tree.write("d/y", age=10)
    assert [name for _, name in tree.look()] == [".x"]


def test_other_patterns_are_another_look(tree: Watched) -> None:
    tree.write("a")
    tree.look()
    tree.configure(exclude=["a"])
    assert tree.look() == []
    tree.configure()
    assert tree.look() == []


def test_no_symlink_leads_out(tree: Watched) -> None:
    outside = tree.site.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    tree.look()
    (tree.folder / "folder").symlink_to(outside)
    (tree.folder / "file").symlink_to(outside / "secret")
    assert tree.look() == []


def test_a_folder_that_becomes_a_symlink_while_we_look_is_not_entered(tree: Watched) -> None:
    outside = tree.site.folder / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    tree.write("d/mine")
    tree.look()
    tree.site.mutate(
        "folder-watch/tree.py",
        "            descriptor = os.open(name, _DIRECTORY, dir_fd=parent)\n",
        "            os.rename(name, name + '2', src_dir_fd=parent, dst_dir_fd=parent)\n"
        f"            os.symlink({str(outside)!r}, name, dir_fd=parent)\n"
        "            descriptor = os.open(name, _DIRECTORY, dir_fd=parent)\n",
    )
    assert "secret" not in str(tree.answer().get("events"))


def test_a_folder_with_too_much_in_it_says_so(tree: Watched) -> None:
    tree.configure(max_entries=5)
    for number in range(6):
        tree.write(str(number))
    answer = tree.answer()
    assert "more than 5 entries" in answer["error"]
    assert answer["retry"] is False


def test_what_is_too_much_for_one_poll_comes_with_the_next(tree: Watched) -> None:
    tree.configure(max_events=4)
    tree.look()
    for number in range(10):
        tree.write(str(number), age=10)
    told = [[name for _, name in tree.look()] for _ in range(4)]
    assert [len(names) for names in told] == [4, 4, 2, 0]
    assert sorted(name for names in told for name in names) == sorted(map(str, range(10)))


def test_names_that_are_no_text(tree: Watched) -> None:
    tree.look()
    raw = os.fsencode(tree.folder) + b"/caf\xe9\n"
    with open(raw, "w") as file:
        file.write("x")
    [event] = tree.answer()["events"]
    assert event["payload"]["relative"] == "caf\\xe9\n"
    assert event["payload"]["path_base64"]
    assert tree.look() == []
    os.unlink(raw)
    assert tree.look() == [("file.deleted", "caf\\xe9\n")]


def test_what_cannot_be_read_was_not_deleted(tree: Watched) -> None:
    tree.write("d/e/a")
    tree.look()
    opened = "os.open(name, _DIRECTORY, dir_fd=parent)"
    tree.site.mutate("folder-watch/tree.py", f"descriptor = {opened}", "raise PermissionError")
    answer = tree.answer()
    assert "events" not in answer
    assert answer["logs"] == [{"level": "warn", "message": "d cannot be read and is left out"}]
    tree.site.mutate("folder-watch/tree.py", "raise PermissionError", f"descriptor = {opened}")
    assert tree.look() == []


def test_a_folder_that_is_not_there_is_an_error_and_no_deletion(tree: Watched) -> None:
    tree.write("a")
    tree.look()
    tree.folder.rename(tree.folder.with_name("away"))
    answer = tree.answer()
    assert answer["status"] == "error"
    tree.folder.mkdir()
    tree.state["device"] += 1
    assert "is it not mounted?" in tree.answer()["error"]
    tree.state["device"] -= 1
    assert tree.look() == [("file.deleted", "a")]


def test_many_files_fit_into_the_state(tree: Watched) -> None:
    for number in range(1500):
        (tree.folder / f"some-longer-name-{number}.json").touch()
    assert tree.look() == []
    assert len(tree.state["snapshot"]) < 50_000
    tree.write("one", age=10)
    assert tree.look() == [("file.created", "one")]


def test_more_than_fits_is_refused(tree: Watched) -> None:
    tree.site.mutate("folder-watch/run.py", "LARGEST_STATE = 900_000", "LARGEST_STATE = 100")
    tree.write("a")
    assert "more than can be remembered" in tree.answer()["error"]


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
def test_a_config_of_folder_watch_that_cannot_work(
    site: BundledSite, config: dict[str, Any]
) -> None:
    watched = Watched(site, "folder-watch", **config)
    assert site.direct(watched.plugin, "poll").code == 78


def test_health_of_folder_watch(tree: Watched) -> None:
    tree.write("a")
    assert tree.site.direct("folder-watch", "health").answer["result"] == "1 entries at the top"


@settings(deadline=None)
@given(pattern=st.text("abc*?!^\\.", min_size=1), name=st.text("abc.^\\]", min_size=1))
def test_patterns_inside_a_name_mean_what_they_do_elsewhere(pattern: str, name: str) -> None:
    pattern = re.sub(r"\*+", "*", pattern)
    assume(pattern != "..")
    found = inside("folder-watch", "tree").Patterns([pattern]).match(name)
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
    assert inside("folder-watch", "tree").Patterns([pattern]).match(path) is matches
