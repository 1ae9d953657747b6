"""Tiny wheels, so that installations need no network."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_wheel(
    wheelhouse: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> str:
    """Write a wheel with one module, whose `VERSION` is the version; return its SHA-256."""
    wheelhouse.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
    metadata += [f"Requires-Dist: {requirement}\n" for requirement in requires]
    contents = {
        f"{name}.py": f"VERSION = {version!r}\n",
        **(files or {}),
        f"{info}/METADATA": "".join(metadata),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*contents, f"{info}/RECORD"))
    path = wheelhouse / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for entry, text in {**contents, f"{info}/RECORD": record}.items():
            wheel.writestr(entry, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()
