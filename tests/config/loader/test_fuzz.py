"""Random files load or cause problems with a location; nothing else is raised."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ductile.config import load, redact_settings
from ductile.config.schema import json_schema
from ductile.errors import ConfigError, Problem
from tests.config.conftest import no_deadline
from tests.config.models.test_pipelines import PIPELINE
from tests.config.test_seeds import DUCTILE, SENECHAL

SOURCES = [SENECHAL, PIPELINE, DUCTILE["config.yaml"], DUCTILE["tokens.yaml"]]
KEYS = sorted(
    {
        key
        for name, definition in json_schema("config")["$defs"].items()
        for key in definition.get("properties", ())
    }
    | set(json_schema("config")["properties"])
)
SCALARS = st.sampled_from(
    ["", "5m", "1", "-1", "true", "x", "/p", "${A}", "${B}", ".inf", "monthly", "06:00-22:00", "*"]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=25,
)


def load_text(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "config.yaml")
        path.write_text(text, encoding="utf-8", errors="replace")
        problems: tuple[Problem, ...] = ()
        try:
            loaded = load(path, environ={"A": "1"})
            json.dumps(redact_settings(loaded.settings))
        except ConfigError as error:
            problems = error.problems
    assert all(problem.file for problem in problems)


@no_deadline
@given(
    st.sampled_from(SOURCES),
    st.integers(0, 2000),
    st.integers(0, 30),
    st.text(":-[]{}&*!|>'\"%@`#,? \n\tab0${}", max_size=6),
)
def test_damaged_file_is_loaded_or_reported(text: str, start: int, length: int, patch: str) -> None:
    start %= len(text)
    load_text(text[:start] + patch + text[start + length :])


@no_deadline
@given(st.dictionaries(st.sampled_from(KEYS), TREES, max_size=6))
def test_random_values_of_known_keys_are_loaded_or_reported(tree: dict[str, Any]) -> None:
    load_text(json.dumps(tree))
