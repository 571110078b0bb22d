# SPDX-License-Identifier: GPL-2.0
"""Results of xdc for Python: load(folder) -> dict of tables.

A folder is a result of `xdc run` (results/two-dc-1g/1), a scenario's folder with its newest result
(results/two-dc-1g), or the output of `xdc sweep` or `xdc paper` (results/sweeps/NAME,
results/papers/NAME). Tables are pandas or polars DataFrames, or lists of dicts. docs/scenarios.md has all
columns and metrics.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import json
import os
import pathlib
from typing import Any, Dict, List, Optional, Union

__all__ = ["load", "flows_of"]

Rows = List[Dict[str, Any]]
Folder = Union[str, "os.PathLike[str]"]

SCHEMA = 2
# Columns of names. The id of a series is the name of a port, or the number of a flow as text.
NAMES = {"cc", "group", "src", "dst", "kind", "id", "cell", "engine", "kernel", "suspect", "figure"}


def load(folder: Folder, frames: Optional[str] = "auto") -> Dict[str, Any]:
    """Loads all tables: flows, series and metrics of a result; table of a sweep or a paper.

    frames: "pandas", "polars", None for lists of dicts, or "auto" for pandas if it is installed.
    """
    folder = newest(pathlib.Path(folder))
    tables = {name: rows(folder / f"{name}.csv") for name in ("flows", "series", "table")
              if (folder / f"{name}.csv").is_file()}
    provenance: Dict[str, Any] = {}
    if (folder / "summary.json").is_file():
        summary = json.loads((folder / "summary.json").read_text())
        if summary.get("schema") != SCHEMA:
            raise ValueError(f"{folder}: schema {summary.get('schema')}, expected {SCHEMA}")
        tables["metrics"] = [flat(run) for run in summary["runs"]]
        about = {key: value for key, value in summary.items() if key != "runs"}
        provenance = {**about, "plan_sha256": {run["cc"]: run["plan_sha256"] for run in summary["runs"]}}
    elif "table" not in tables:
        raise FileNotFoundError(f"{folder} has neither summary.json nor table.csv")
    return {**{name: framed(table, frames) for name, table in tables.items()}, "provenance": provenance}


def flows_of(folder: Folder, cell: str, frames: Optional[str] = "auto") -> Any:
    """Loads the flows of one cell of a sweep or a paper, named by the column `cell` of its table."""
    return framed(rows(cell_file(folder, f"{cell}.flows.csv")), frames)


def framed(table: Rows, frames: Optional[str]) -> Any:
    """Makes a DataFrame of the rows."""
    if frames == "auto":
        frames = "pandas" if importlib.util.find_spec("pandas") else None
    if frames is None:
        return table
    if frames == "polars":
        return importlib.import_module("polars").DataFrame(table, infer_schema_length=None)
    if frames == "pandas":
        return importlib.import_module("pandas").DataFrame(table)
    raise ValueError(f"frames is {frames!r}: pandas, polars, auto or None")


def newest(folder: pathlib.Path) -> pathlib.Path:
    """The folder itself, or the result with the highest number in it."""
    if any((folder / name).is_file() for name in ("summary.json", "table.csv")):
        return folder
    numbers = [int(path.parent.name) for path in folder.glob("*/summary.json") if path.parent.name.isdigit()]
    return folder / str(max(numbers)) if numbers else folder


def cell_file(folder: Folder, name: str) -> pathlib.Path:
    """Path of a cell's file: in the folder after a sweep on Slurm, else in xdc's cache."""
    own = pathlib.Path(folder) / "cells" / name
    if own.is_file():
        return own
    env = os.environ.get
    base = env("XDC_CACHE_HOME") or env("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(env("XDC_CACHE") or pathlib.Path(base) / "xdc") / "cells" / name


def rows(path: pathlib.Path) -> Rows:
    """Reads a CSV file as dicts: numbers in numeric columns, None for an empty field."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{key: value if key in NAMES else number(value) for key, value in row.items()}
                for row in csv.DictReader(file, strict=True)]


def number(text: str) -> Union[int, float, str, None]:
    if text == "":
        return None
    try:
        return float(text) if any(c in text for c in ".eE") else int(text)
    except ValueError:
        return text


def flat(value: Any, name: str = "") -> Dict[str, Any]:
    """Flattens summary.json to names of metrics: fct_ms.max, queues.port.drops."""
    if isinstance(value, dict):
        items = iter(value.items())
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value) and value:
        items = ((item.get("name", n), item) for n, item in enumerate(value))
    else:
        return {name: "; ".join(value) if isinstance(value, list) else value}
    return {key: leaf for inner, item in items
            for key, leaf in flat(item, f"{name}.{inner}" if name else str(inner)).items()}
