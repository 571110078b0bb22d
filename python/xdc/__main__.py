# SPDX-License-Identifier: GPL-2.0
"""python3 -m xdc FOLDER: names tables and columns. With --parquet DIR, writes each table to DIR/NAME.parquet."""

import argparse
import pathlib

from . import framed, load

parser = argparse.ArgumentParser(prog="python3 -m xdc", description="Tables of a result, a sweep or a paper of xdc")
parser.add_argument("folder")
parser.add_argument("--parquet", metavar="DIR", type=pathlib.Path, help="write each table to DIR/NAME.parquet")
args = parser.parse_args()

for name, table in load(args.folder, frames=None).items():
    columns = ", ".join(table[0]) if isinstance(table, list) and table else ", ".join(table)
    print(f"{name}: {len(table)} rows or keys: {columns}")
    if args.parquet and isinstance(table, list):
        args.parquet.mkdir(parents=True, exist_ok=True)
        framed(table, "pandas").to_parquet(args.parquet / f"{name}.parquet")
