"""Shared parts of the benchmarks: a lab, alternating runs, medians and pairwise ratios."""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIREBENCH = os.path.join(ROOT, "target/release/wirebench")
LAB = "bench"
A, B = f"wb-{LAB}-a", f"wb-{LAB}-b"
TX_PORT, RX_PORT = f"{A}/a0", f"{B}/b0"


def need_root(wirebench=WIREBENCH):
    if os.geteuid() != 0:
        sys.exit("bench: needs root to create network namespaces")
    if not os.path.exists(wirebench):
        sys.exit("bench: wirebench is not built; run: make build")


def run(argv, **kwargs):
    return subprocess.run(argv, text=True, capture_output=True, **kwargs)


def lab_up():
    lab_down()
    done = run([WIREBENCH, "lab", "up", "pair", "--as", LAB])
    if done.returncode:
        sys.exit(f"bench: {done.stderr}")


def lab_down():
    run([WIREBENCH, "lab", "down", LAB])


def bpf_object(source, obj):
    """Compiles a BPF program of the benchmarks."""
    arch = run(["cc", "-print-multiarch"]).stdout.strip()
    subprocess.run(
        ["clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{arch}", "-c", os.path.join(ROOT, "bench", source), "-o", obj],
        check=True,
    )


def live_sender(folder):
    """Builds the sender of live frames in this folder and returns its command."""
    obj, binary = os.path.join(folder, "live_sender.o"), os.path.join(folder, "live_sender")
    bpf_object("live_sender.bpf.c", obj)
    subprocess.run(["cc", "-O2", "-Wall", "-o", binary, os.path.join(ROOT, "bench/live_sender.c"), "-lbpf"], check=True)
    return [binary, obj]


def clock_gaps(folder, cpu, seconds):
    """Timing accuracy of this CPU: cost of a clock reading in ns, number of interruptions above 1 us per second, and
    their share of the time."""
    binary = os.path.join(folder, "clock_gaps")
    subprocess.run(["cc", "-O2", "-Wall", "-o", binary, os.path.join(ROOT, "bench/clock_gaps.c")], check=True)
    done = subprocess.run([binary, str(cpu), str(seconds)], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def xdp_drop(node, interface, on):
    """Attaches or detaches the dropping program at the peer end."""
    if on:
        obj = "/tmp/wb-bench-xdp-drop.o"
        bpf_object("xdp_drop.c", obj)
        subprocess.run(["ip", "-n", node, "link", "set", interface, "xdp", "obj", obj, "sec", "xdp"], check=True)
    else:
        run(["ip", "-n", node, "link", "set", interface, "xdp", "off"])


def wirebench_tx(port, seconds, *options):
    """Offered frames per second of a `tx` run."""
    done = run([WIREBENCH, "tx", "-i", port, "--dst-mac", "02:00:00:00:00:99", "--size", "64", "--duration", f"{seconds}s", "-q", "--json", *options])
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["rates"]["offered_pps"]


TESTPMD = ["dpdk-testpmd", "--no-huge", "-m", "512", "--no-pci"]


@contextlib.contextmanager
def one_cpu():
    """Restricts child processes, and the kernel's work for them, to one CPU. Otherwise a process may move while its
    previous CPU still empties its queue, so that the measurement covers two CPUs."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(all_of_them)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def lcores():
    """Two threads for testpmd, one of which sleeps."""
    cpus = sorted(os.sched_getaffinity(0))
    return f"--lcores=0@{cpus[0]},1@{cpus[min(1, len(cpus) - 1)]}"


def testpmd(node, vdev, mode, seconds, figure, device=None):
    """The last but one `Tx-pps` or `Rx-pps` of a testpmd run; with a device, the rate of its transmit counter."""
    # The start-up time depends on the machine, so wait for the printed figures.
    argv = ["ip", "netns", "exec", node, "timeout", str(seconds + 30), *TESTPMD, lcores(), "--vdev", vdev, "--",
            f"--forward-mode={mode}", "--total-num-mbufs=20000", "--nb-cores=1", "--stats-period", "1", "--auto-start"]
    if mode == "txonly":
        argv += ["--txpkts=60"]
    pmd = subprocess.Popen(argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, rates, counted = [], [], []
    for line in pmd.stdout:
        said.append(line)
        new = [int(n) for n in re.findall(figure + r":\s+(\d+)", line) if int(n)]
        rates += new
        if new and device and len(rates) in (1, max(seconds, 3)):
            counted.append((sysfs_tx_packets(node, device), time.monotonic()))
        if len(rates) >= max(seconds, 3):
            break
    pmd.terminate()
    pmd.communicate()
    if len(rates) < 3:
        raise SystemExit(f"testpmd printed no figures: {''.join(said)[-1000:]}")
    if device:
        (before, begin), (after, end) = counted
        return (after - before) / (end - begin)
    return rates[-2]


def sysfs_tx_packets(node, interface):
    text = run(["ip", "-n", node, "-j", "-s", "link", "show", interface]).stdout
    return json.loads(text)[0]["stats64"]["tx"]["packets"]


TRAFGEN = """{
  eth(da=02:00:00:00:00:99, sa=02:00:00:00:00:01),
  ipv4(saddr=198.18.1.2, daddr=198.19.1.2, ttl=64),
  udp(sp=49184, dp=7), fill('A', 18)
}
"""


def trafgen(node, interface, seconds):
    """Frames per second that trafgen really sent, according to the device's counter."""
    config = "/tmp/wb-bench-trafgen.cfg"
    with open(config, "w") as f:
        f.write(TRAFGEN)
    argv = ["ip", "netns", "exec", node, "trafgen", "--dev", interface, "--conf", config, "-P", "1", "-b", "0", "-q"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        time.sleep(1.0)
        before, begin = sysfs_tx_packets(node, interface), time.monotonic()
        time.sleep(seconds)
        after, end = sysfs_tx_packets(node, interface), time.monotonic()
    finally:
        # Otherwise the child would continue to send during the next run.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return (after - before) / (end - begin)


def in_turn(runners, rounds):
    """Runs each once per round, A B C A B C, after an uncounted warm-up round."""
    figures = {name: [] for name, _ in runners}
    for round_number in range(rounds + 1):
        for name, runner in runners:
            figure = runner()
            if round_number:
                figures[name].append(figure)
            print(f"  round {round_number or 'warm-up'}: {name}: {figure / 1e6:.3f} Mpps", flush=True)
    return figures


def report(figures, pairs):
    """Prints medians and pairwise ratios."""
    for name, values in figures.items():
        print(f"  {name:34} median {statistics.median(values) / 1e6:6.3f} Mpps   ({min(values) / 1e6:.3f} to {max(values) / 1e6:.3f})")
    for ours, theirs, goal in pairs:
        ratios = [a / b for a, b in zip(figures[ours], figures[theirs])]
        print(f"  {ours} / {theirs}: median {statistics.median(ratios):.2f} x   ({min(ratios):.2f} to {max(ratios):.2f}), goal {goal}")


def add_binaries(parser):
    """Adds options for the binary under test and a second binary to compare it with."""
    parser.add_argument("--wirebench", default=WIREBENCH, metavar="FILE", help="binary under test")
    parser.add_argument("--against", metavar="OTHER_BINARY", help="compare with this binary instead of the peers")


def use_binaries(args):
    """Takes the binaries from the parsed options and checks that they run."""
    global WIREBENCH
    WIREBENCH = args.wirebench
    need_root(WIREBENCH)
    if args.against and not os.access(args.against, os.X_OK):
        sys.exit(f"bench: --against: {args.against} is not an executable file")


@contextlib.contextmanager
def binary(path):
    """Uses this binary for all runs inside the block."""
    global WIREBENCH
    before, WIREBENCH = WIREBENCH, path
    try:
        yield
    finally:
        WIREBENCH = before


def against(other, runners, rounds, unit="Mpps", scale=1e6, say=print):
    """Runs each runner with the binary under test and with `other` in turn, after one warm-up pair. Prints the ratio of
    each pair and their median. A runner returns a rate. The order within a pair alternates from round to round, so
    that a drift of the machine favours neither binary. Returns the median ratios by name."""
    medians = {}
    for name, runner in runners:
        pairs = []
        for round_number in range(rounds + 1):
            this, that = (0, 1) if round_number % 2 else (1, 0)
            figures = {}
            for which in (this, that):
                with binary((WIREBENCH, other)[which]):
                    figures[which] = runner()
            if round_number:
                this, that = figures[0], figures[1]
                pairs.append((this, that))
                say(f"  round {round_number}: {name}: {this / scale:,.3f} {unit}, other {that / scale:,.3f} {unit}, ratio {this / that:.3f}")
        ratios = [this / that for this, that in pairs]
        medians[name] = statistics.median(ratios)
        this, that = (statistics.median(figures) / scale for figures in zip(*pairs))
        say(f"  {name:34} median {this:,.3f} {unit}, other {that:,.3f} {unit}; median of the ratios {medians[name]:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    return medians


def kernel_pair(a, b, there):
    """A veth pair with the kernel's default settings, 198.18.1.1 in node a and `there` in b. Lab ends have the segment
    offloads disabled, which sockets need for speed."""
    kernel_pair_down(a, b)
    for command in (
        ["netns", "add", a],
        ["netns", "add", b],
        ["-n", a, "link", "add", "a0", "type", "veth", "peer", "name", "b0", "netns", b],
        ["-n", a, "addr", "add", "198.18.1.1/24", "dev", "a0"],
        ["-n", b, "addr", "add", f"{there}/24", "dev", "b0"],
        ["-n", a, "link", "set", "a0", "up"],
        ["-n", b, "link", "set", "b0", "up"],
        ["-n", a, "link", "set", "lo", "up"],
        ["-n", b, "link", "set", "lo", "up"],
    ):
        done = run(["ip", *command])
        if done.returncode:
            raise SystemExit(f"bench: ip {' '.join(command)}: {done.stderr}")


def kernel_pair_down(a, b):
    for node in (a, b):
        run(["ip", "netns", "del", node])
