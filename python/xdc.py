# SPDX-License-Identifier: GPL-2.0
"""Results of xdc for Python: load(folder) -> dict of tables.

A folder is a result of `xdc run` (results/two-dc-1g/1), a scenario's folder with its newest result
(results/two-dc-1g), or the output of `xdc sweep` or `xdc paper` (results/sweeps/NAME,
results/papers/NAME). Tables are pandas DataFrames if pandas is installed, else lists of dicts.
docs/scenarios.md has all columns and metrics.
"""

import csv
import json
import os
import pathlib
import sys

try:
    import pandas
except ImportError:
    pandas = None

SCHEMA = 2
NAMES = {"cc", "group", "src", "dst", "kind", "id", "cell", "engine", "kernel", "suspect", "figure"}


def load(folder, use_pandas=True):
    """Loads all tables: flows, series and metrics of a result; table of a sweep or a paper."""
    folder = newest(pathlib.Path(folder))
    tables = {name: rows(folder / f"{name}.csv") for name in ("flows", "series", "table")
              if (folder / f"{name}.csv").is_file()}
    if (folder / "summary.json").is_file():
        summary = json.loads((folder / "summary.json").read_text())
        if summary.get("schema") != SCHEMA:
            raise ValueError(f"{folder}: schema {summary.get('schema')}, expected {SCHEMA}")
        tables["metrics"] = [flat(run) for run in summary["runs"]]
        about = {key: value for key, value in summary.items() if key != "runs"}
        provenance = {**about, "plan_sha256": {run["cc"]: run["plan_sha256"] for run in summary["runs"]}}
    elif "table" in tables:
        provenance = {}
    else:
        raise FileNotFoundError(f"{folder} has neither summary.json nor table.csv")
    if use_pandas and pandas is not None:
        tables = {name: pandas.DataFrame(table) for name, table in tables.items()}
    return {**tables, "provenance": provenance}


def newest(folder):
    """The folder itself, or the result with the highest number in it."""
    if any((folder / name).is_file() for name in ("summary.json", "table.csv")):
        return folder
    numbers = [int(path.parent.name) for path in folder.glob("*/summary.json") if path.parent.name.isdigit()]
    return folder / str(max(numbers)) if numbers else folder


def flows_of(folder, cell):
    """Loads the flows of one cell of a sweep or a paper, named by the column `cell` of its table."""
    table = rows(cell_file(folder, f"{cell}.flows.csv"))
    return table if pandas is None else pandas.DataFrame(table)


def cell_file(folder, name):
    """Path of a cell's file: in the folder after a sweep on Slurm, else in xdc's cache."""
    own = pathlib.Path(folder) / "cells" / name
    if own.is_file():
        return own
    env = os.environ.get
    base = env("XDC_CACHE_HOME") or env("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(env("XDC_CACHE") or pathlib.Path(base) / "xdc") / "cells" / name


def rows(path):
    """Reads a CSV file as dicts: numbers in numeric columns, None for an empty field."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{key: value if is_name(key, row) else number(value) for key, value in row.items()}
                for row in csv.DictReader(file, strict=True)]


def is_name(key, row):
    """Whether a column holds names. A port's id is a name even if numeric; a flow's id is a number."""
    return key in NAMES and (key != "id" or row.get("kind") == "queue")


def number(text):
    if text == "":
        return None
    try:
        return float(text) if any(c in text for c in ".eE") else int(text)
    except ValueError:
        return text


def flat(value, name=""):
    """Flattens summary.json to names of metrics: fct_ms.max, queues.port.drops."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and all(isinstance(item, dict) for item in value) and value:
        items = ((item.get("name", n), item) for n, item in enumerate(value))
    else:
        return {name: "; ".join(value) if isinstance(value, list) else value}
    return {key: leaf for inner, item in items
            for key, leaf in flat(item, f"{name}.{inner}" if name else str(inner)).items()}


if __name__ == "__main__":
    for name, table in load(sys.argv[1], use_pandas=False).items():
        columns = ", ".join(table[0]) if isinstance(table, list) and table else ", ".join(table)
        print(f"{name}: {len(table)} rows or keys: {columns}")
