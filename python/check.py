#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""check.py RESULT [SWEEP]: checks that the package reads files of xdc, without pandas."""

import pathlib
import sys

sys.dont_write_bytecode = True
import xdc  # noqa: E402 (it lies beside this file)

passed = failed = 0


def check(what, holds):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"not ok - {what}")


def numbers(table, column):
    return all(isinstance(row[column], (int, float)) for row in table)


result = xdc.load(sys.argv[1], frames=None)
flows, series, metrics = result["flows"], result["series"], result["metrics"]
about = result["provenance"]
ccs = [run["cc"] for run in metrics]
check("each congestion control has flows", {row["cc"] for row in flows} == set(ccs))
check("and a series", {row["cc"] for row in series} == set(ccs))
check("every row has every column", all(None not in row and len(row) == 13 for row in flows))
check("a series, too", all(None not in row and len(row) == 13 for row in series))
check("starts are numbers", numbers(flows, "start_us"))
check("times are numbers", numbers(series, "t_us"))
for run in metrics:
    own = [row for row in flows if row["cc"] == run["cc"]]
    ended = [row["fct_us"] for row in own if row["fct_us"] is not None]
    check("as many flows as the summary says", len(own) == run["flows"])
    if run["fct_us.max"] is not None:
        check("the last FCT is the summary's", abs(max(ended) - run["fct_us.max"]) < 0.001)
    check("retransmissions add up", sum(row["retransmits"] for row in own) == run["retransmits"])
    ids = {int(row["id"]) for row in series if row["cc"] == run["cc"] and row["kind"] == "flow"}
    check("a flow has the same number in every table", ids <= {row["flow"] for row in own})
    ports = {row["id"] for row in series if row["cc"] == run["cc"] and row["kind"] == "queue"}
    check("every port of the series is in the summary", all(f"queues.{port}.drops" in run for port in ports))
check("hashes are there", all(len(value) == 64 for value in about["plan_sha256"].values()))
check("and a date", about["provenance"]["date"].endswith("Z"))
newest = xdc.load(pathlib.Path(sys.argv[1]).resolve().parent, frames=None)
check("the folder of a scenario is its newest result", newest["flows"] and newest["provenance"]["scenario"] == about["scenario"])
if len(sys.argv) > 2:
    sweep = xdc.load(sys.argv[2], frames=None)
    for row in sweep["table"]:
        flows = xdc.rows(xdc.cell_file(sys.argv[2], f"{row['cell']}.flows.csv"))
        check("a row's cell is that of its congestion control", {flow["cc"] for flow in flows} == {row["cc"]})
        check("and has as many flows", len(flows) == row["flows"])
print(f"# python: {passed} passed, {failed} failed")
sys.exit(failed != 0)
