#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: iperf3, netperf, redis and nginx over a phantom port that marks and drops
# kernels: uml x86
# variants: cubic dctcp bbr | unocc gemini
"""Programs of the distribution between two hosts, with a router between them.

Both of the router's ports are phantoms of 200 Mbit/s whose buffer is too small
for so many flows: they mark, and they drop. No program may report an error, no
byte may be wrong, and nothing may stand still for STALL_S seconds of the
guest's time.
"""

import hashlib
import json
import os
import re
import subprocess
import time
import traceback

import ktap

VARIANTS = ["cubic", "dctcp", "bbr", "unocc", "gemini"]
# Variants of the fast form; if a case fails, the kernel's own must show that it can pass.
FEW = ["unocc"]
MEASURE = "cubic"
LONG = "XDC_LONG" in os.environ
SERVER = "10.2.0.1"
PORT = "rate 200mbit limit 60kb phantom 500kb drain 0.9 pmin 2% pmax 60% mark either"
SECONDS = 5 if LONG else 2
# Longer than any retransmission timeout at such a port.
STALL_S = 10
PATIENCE_S = 600
FILE_BYTES = (20 if LONG else 4) << 20
# Concurrent redis clients, and values that each of them sets.
CLIENTS = 20
VALUES = 1000 if LONG else 200
FOLDER = "/tmp/applications"
# Lines kept of an exception's traceback.
LAST_LINES = 8


class Wrong(Exception):
    """What a case says when it fails."""


def run(host, command, patience_s=PATIENCE_S, **more):
    """A command on one of the hosts; its output."""
    try:
        done = subprocess.run(
            ["ip", "netns", "exec", host, "bash", "-c", command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=patience_s, check=False, **more)
    except subprocess.TimeoutExpired as late:
        raise Wrong(f"{command.split()[0]} took more than {patience_s} s") from late
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()[-6:]
        raise Wrong(f"{command.split()[0]} ended with {done.returncode}: {' | '.join(said)}")
    return done.stdout


def shell(command):
    subprocess.run(["bash", "-ec", command], check=True)


def network(cc):
    """h1, r and h2, as every other test of the project has them."""
    shell(f"""
        for ns in h1 r h2; do ip netns add $ns; ip -n $ns link set lo up; done
        for i in 1 2; do
            ip link add eth0 netns h$i type veth peer name eth$i netns r
            ip -n h$i addr add 10.$i.0.1/24 dev eth0
            ip -n r addr add 10.$i.0.2/24 dev eth$i
            ip -n h$i link set eth0 up
            ip -n r link set eth$i up
            ip -n h$i route add default via 10.$i.0.2
            ip netns exec h$i sysctl -qw net.ipv4.tcp_congestion_control={cc} net.ipv4.tcp_ecn=3 \
                net.ipv4.tcp_no_metrics_save=1
        done
        ip netns exec r sysctl -qw net.ipv4.ip_forward=1
        tc -n r qdisc add dev eth2 root handle 1: phantom {PORT}
        tc -n r qdisc add dev eth1 root handle 2: netem delay 1ms limit 10000
        tc -n r qdisc add dev eth1 parent 2: handle 1: phantom {PORT}
    """)


class Server:
    """A daemon on h2 that lives as long as the block."""

    def __init__(self, command, port):
        self.command, self.port = command, port

    def __enter__(self):
        # A file: an unread pipe would block the program.
        log = open(f"{FOLDER}/{self.port}.log", "wb")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", "h2"] + self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        for _ in range(200):
            if self.process.poll() is not None:
                with open(f"{FOLDER}/{self.port}.log", encoding="utf-8", errors="replace") as said:
                    raise Wrong(f"{self.command[0]} does not start: {said.read()[-300:]}")
            if run("h2", f"ss -ltnH sport = :{self.port}").strip():
                return self
            time.sleep(0.1)
        raise Wrong(f"{self.command[0]} does not listen on {self.port}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def iperf3():
    """64 streams each way at once; every one of them moves bytes, and no second is empty."""
    with Server(["iperf3", "-s", "-1"], 5201):
        said = json.loads(run("h1", f"iperf3 -J -c {SERVER} --bidir -P 32 -t {SECONDS}"))
    if said.get("error"):
        raise Wrong(said["error"])
    streams = said["end"]["streams"]
    still = [i for i, stream in enumerate(streams) if not stream["sender"]["bytes"]]
    if len(streams) != 64 or still:
        raise Wrong(f"{len(streams)} streams, {len(still)} of them without a byte")
    for i, interval in enumerate(said["intervals"]):
        sums = [interval["sum"]["bytes"], interval["sum_bidir_reverse"]["bytes"]]
        if interval["sum"]["seconds"] >= 0.5 and not any(sums):
            raise Wrong(f"nothing moved in interval {i}")


def netperf(test):
    """Requests and answers; the slowest of them within STALL_S."""
    with Server(["netserver", "-D"], 12865):
        said = run("h1", f"netperf -P 0 -H {SERVER} -l {SECONDS} -t omni -- -d rr -T tcp {test}"
                   " -o throughput,max_latency").decode()
    rate, slowest_us = (float(word) for word in said.split()[-1].split(","))
    if rate <= 0:
        raise Wrong("no transaction")
    if slowest_us > STALL_S * 1e6:
        raise Wrong(f"a transaction took {slowest_us / 1e6:.1f} s")


def benchmark():
    """redis-benchmark. Whoever has sent all its requests spins until the others have their answers, which in
    virtual time takes minutes; so there it does not run."""
    count = 20000 if LONG else 4000
    command = f"redis-benchmark -h {SERVER} -c 50 -n {count} -d 2000 -P 4 -t set,get,lrange_100 --csv"
    said = run("h1", command).decode()
    tests = re.findall(r'^"([A-Z][^"]*)","([0-9.]+)"', said, re.M)
    if not {"SET", "GET"} <= {name for name, _ in tests} or any(float(rate) <= 0 for _, rate in tests):
        raise Wrong(f"the benchmark said {said[-200:]!r}")


def redis():
    """Values of many clients at once, and a large one, come back as they went."""
    with Server(["redis-server", "--save", "", "--protected-mode", "no", "--bind", "0.0.0.0"], 6379):
        if not ktap.has_virtual_time():
            benchmark()
        values = {}
        for client in range(CLIENTS):
            values[client] = [os.urandom(1000).hex() for _ in range(VALUES)]
            with open(f"{FOLDER}/set{client}", "w", encoding="ascii") as file:
                file.writelines(f"SET {client}.{i} {value}\r\n" for i, value in enumerate(values[client]))
        each = f"for i in {{0..{CLIENTS - 1}}}; do redis-cli -h {SERVER}"
        said = run("h1", f"{each} --pipe <{FOLDER}/set$i & done; wait").decode()
        if said.count(f"errors: 0, replies: {VALUES}") != CLIENTS:
            raise Wrong(" | ".join(line for line in said.splitlines() if "errors" in line))
        run("h1", f"{each} --raw mget $i.{{0..{VALUES - 1}}} >{FOLDER}/got$i & done; wait")
        for client, sent in values.items():
            with open(f"{FOLDER}/got{client}", encoding="ascii", errors="replace") as file:
                if file.read().split() != sent:
                    raise Wrong(f"the values of client {client} came back as others")
        sent = os.urandom(FILE_BYTES)
        with open(f"{FOLDER}/value", "wb") as value:
            value.write(sent)
        run("h1", f"redis-cli -h {SERVER} -x set v <{FOLDER}/value")
        got = run("h1", f"redis-cli -h {SERVER} --raw get v")[:-1]
        if got != sent:
            raise Wrong(f"{len(sent)} bytes came back as {len(got)} others")


NGINX = """daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; keepalive_requests 1000000;
    client_body_temp_path {folder}/tmp/b; proxy_temp_path {folder}/tmp/p; fastcgi_temp_path {folder}/tmp/f;
    uwsgi_temp_path {folder}/tmp/u; scgi_temp_path {folder}/tmp/s;
    server {{ listen 80; root {folder}/www; }} }}
"""


FETCH = """
import concurrent.futures, hashlib, urllib.request
def fetch(_):
    with urllib.request.urlopen("http://{server}/big", timeout={stall_s}) as answer:
        print(hashlib.sha256(answer.read()).hexdigest(), flush=True)
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    list(pool.map(fetch, range(4)))
"""


def nginx():
    """wrk without an error, and files whose digests are right."""
    for folder in ("www", "tmp"):
        os.makedirs(f"{FOLDER}/{folder}", exist_ok=True)
    big = os.urandom(FILE_BYTES)
    for name, content in [("small", os.urandom(20000)), ("big", big)]:
        with open(f"{FOLDER}/www/{name}", "wb") as file:
            file.write(content)
    with open(f"{FOLDER}/nginx.conf", "w", encoding="ascii") as file:
        file.write(NGINX.format(folder=FOLDER))
    with Server(["nginx", "-c", f"{FOLDER}/nginx.conf", "-g", "user root;"], 80):
        said = run("h1", f"wrk -t 2 -c 32 -d {SECONDS} --timeout {STALL_S} http://{SERVER}/small").decode()
        requests = re.search(r"(\d+) requests in", said)
        if "Socket errors" in said or "Non-2xx" in said or not requests or not int(requests[1]):
            raise Wrong(" | ".join(said.splitlines()[-6:]))
        got = run("h1", f"python3 -c '{FETCH.format(server=SERVER, stall_s=STALL_S)}'").decode().split()
        right = got.count(hashlib.sha256(big).hexdigest())
        if right != 4:
            raise Wrong(f"of 4 downloads {right} were right")


def both_ways():
    """A file each way at once, on one connection."""
    sent = [os.urandom(FILE_BYTES) for _ in range(2)]
    for name, content in zip("ab", sent):
        with open(f"{FOLDER}/{name}", "wb") as file:
            file.write(content)
    with Server(["bash", "-c", f"socat -t 60 TCP-LISTEN:7000,reuseaddr 'SYSTEM:cat {FOLDER}/b & cat >{FOLDER}/got-a; wait'"], 7000) as server:
        got_b = run("h1", f"socat -t 60 - TCP:{SERVER}:7000 <{FOLDER}/a")
        server.process.wait(60)
    with open(f"{FOLDER}/got-a", "rb") as file:
        got = [file.read(), got_b]
    for name, a, b in zip(("there", "back"), sent, got):
        if a != b:
            raise Wrong(f"{name}: {len(a)} bytes arrived as {len(b)}")


def port():
    """Both ports marked, and both dropped: else nothing was tried."""
    for device in ("eth1", "eth2"):
        shown = json.loads(run("r", f"tc -s -j qdisc show dev {device}"))
        (phantom,) = (qdisc for qdisc in shown if qdisc["kind"] == "phantom")
        marks = sum(value for key, value in phantom.items() if key.startswith("marked"))
        if not marks or not phantom["drops"]:
            raise Wrong(f"{device}: {marks} marks, {phantom['drops']} drops")


CASES = [
    ("iperf3, 32 streams each way", iperf3),
    ("netperf TCP_RR", lambda: netperf("")),
    ("netperf TCP_RR, 20 kB answers", lambda: netperf("-r 100,20000")),
    ("netperf TCP_CRR", lambda: netperf("-c")),
    ("redis, values there and back", redis),
    ("wrk on nginx, and downloads", nginx),
    ("one connection, a file each way", both_ways),
    ("the ports marked and dropped", port),
]


def each(report, cc):
    """Every case with this congestion control; whether all passed."""
    passed = True
    network(cc)
    for name, case in CASES:
        try:
            case()
            report.result("passed", cc, name)
            continue
        except Wrong as wrong:
            notes = [str(wrong)]
        # Other errors belong to the case; later cases still run.
        except Exception:  # pylint: disable=broad-except
            notes = traceback.format_exc().splitlines()[-LAST_LINES:]
        report.result("failed", cc, name, notes)
        passed = False
    shell("for ns in h1 r h2; do ip netns del $ns; done")
    return passed


def main():
    report = ktap.Ktap()
    ktap.load("sch_phantom", "tcp_unocc", "tcp_gemini")
    ktap.set_first_sysctl("net/ipv4/tcp_allowed_congestion_control", "reno " + " ".join(VARIANTS))
    os.makedirs(FOLDER, exist_ok=True)
    passed = [each(report, cc) for cc in (VARIANTS if LONG else FEW)]
    if not LONG and not all(passed):
        each(report, MEASURE)
    report.finish()


if __name__ == "__main__":
    main()
