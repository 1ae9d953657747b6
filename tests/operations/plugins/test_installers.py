"""uv and pip as `plugin sync` calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ductile.operations.plugins import installers
from ductile.operations.plugins.installers import InstallationFailed, UvInstaller
from ductile.plugins.environments.locate import gateway_python
from ductile.plugins.environments.lock import LockedPackage

DIGEST = "a" * 64
FAKE = """\
#!/bin/sh
echo "$@" >> {calls}
echo "Resolved 1 package in 1ms" >&2
while [ $# -gt 0 ]; do
  if [ "$1" = --output-file ]; then printf '%s' '{resolved}' > "$2"; fi
  if [ "$1" = -r ]; then cat "$2" >> {calls}; fi
  shift
done
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def fake_uv(tmp_path: Path, resolved: str = f"tiny==1.0 --hash=sha256:{DIGEST}") -> str:
    program = tmp_path / "uv"
    program.write_text(FAKE.format(calls=tmp_path / "calls", resolved=resolved))
    program.chmod(0o755)
    return str(program)


def test_uv_locks_with_hashes_and_installs_only_those(tmp_path: Path, calls: Path) -> None:
    lines: list[str] = []
    source = ["--no-index", "--find-links", "/wheels"]
    uv = UvInstaller(fake_uv(tmp_path), source, lines.append)
    packages = uv.resolve(["tiny"], gateway_python())
    assert packages == [LockedPackage("tiny", "1.0", (DIGEST,))]
    uv.install(tmp_path / "env", packages)
    resolved, installed, *listed = calls.read_text().splitlines()
    assert resolved.startswith("pip compile --generate-hashes")
    assert "--no-index --find-links /wheels" in resolved
    assert installed.startswith("pip install --require-hashes --no-deps")
    assert "--no-index --find-links /wheels" in installed
    assert listed[:2] == ["tiny==1.0 \\", f"    --hash=sha256:{DIGEST}"]
    assert lines == ["  resolved 1 package in 1ms"] * 2


def test_a_resolved_address_is_not_locked(tmp_path: Path) -> None:
    uv = UvInstaller(fake_uv(tmp_path, "tiny @ https://example.com/tiny.whl"), [], lambda _: None)
    with pytest.raises(InstallationFailed, match="cannot be locked"):
        uv.resolve(["tiny"], gateway_python())


def test_a_failure_has_the_end_of_the_output(tmp_path: Path) -> None:
    program = tmp_path / "fails"
    program.write_text("#!/bin/sh\nseq 1000\necho no such package >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(InstallationFailed) as caught:
        installers.run_installer("pip", [str(program)], lambda _: None)
    assert caught.value.message.startswith("pip failed:\n")
    assert caught.value.message.endswith("no such package")
    assert len(caught.value.message) < 1000


def test_a_package_without_a_hash_is_not_locked() -> None:
    entry = {"metadata": {"name": "tiny", "version": "1.0"}, "download_info": {"archive_info": {}}}
    with pytest.raises(InstallationFailed, match="cannot be locked"):
        installers._read_pip_report(json.dumps({"install": [entry]}).encode())
