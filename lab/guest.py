# SPDX-License-Identifier: GPL-2.0
"""What every runner of a lab machine shares: a job goes in, a verdict comes out.

A runner (lab/uml) says how a machine is started. This module makes the
results directory and leaves the job there, starts the machine, hands on the
job's output as it grows, and judges. Verdicts, which are exit codes too:

    GOOD     the job exited with 0 and the kernel had nothing to report
    FAILED   the job exited with something else
    SPLAT    the kernel reported a fault: whatever the job says, this fails
    CRASHED  the machine ended and no exit code came
    TIMEOUT  the machine was still there at its time limit
    NOSTART  nothing was run: a wrong option, no kernel

In the results directory: `job` (by us), `stdout`, `stderr`, `exit`, `dmesg`,
`leaks`, `kunit/SUITE` (by lab/init, in the machine), `console` (everything
that the kernel and the emulator wrote, kept for the reader, and searched for
reports that came too late for dmesg). The machine is started in there.

Who kills whom: this process does, with SIGKILL, at the time limit, when it is
interrupted, and also after a good end. It adopts what its machine leaves
behind (it is a subreaper), so it knows each process by its parent, never by
its name. The machine's first process dies with us, too.
"""
import argparse
import ctypes
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

GOOD, FAILED, SPLAT, CRASHED, TIMEOUT, NOSTART = range(6)
TOP = pathlib.Path(__file__).resolve().parent.parent

# A stack trace is a report, whatever its title; the titles are for those
# that come without one.
SPLATS = re.compile("|".join((
    r"Call Trace:", r"\bcut here\b", r"WARNING:", r"\bBUG\b", r"\bOops\b",
    r"Kernel panic", r"general protection", r"INFO:",
    r"lockup", r"detected .*stalls?", r"scheduling while atomic",
    r"sleeping function called", r"bad unlock balance", r"\bK[AC]SAN\b",
    r"\bUBSAN\b", r"\bODEBUG\b", r"refcount_t:", r"ref_tracker:",
    r"stack-protector", r"(list_add|list_del|slab).* corrupt", r"[Bb]ad page",
    r"kmemleak: \d+ new", r"unregister_netdevice: waiting",
    r"page allocation failure", r"oom-killer",
    # a queue that doesn't exist was chosen: netdev_cap_txqueue()
    r"selects TX queue",
)))

# Reports that are wanted: (pattern for the whole line, why, until when). One
# line of the log each: the trace below a report can't be allowed away.
ALLOWED = ()

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
libc = ctypes.CDLL(None)


class Refused(Exception):
    """Nothing was started; the text says what to do."""


def size(text):
    if not re.fullmatch(r"\d+[KMG]", text):
        raise argparse.ArgumentTypeError(f"{text} isn't a size like 512M")
    return text


def options(doc):
    """The options of every runner, parsed."""
    ap = argparse.ArgumentParser(description=doc, exit_on_error=False,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.error = lambda text: (_ for _ in ()).throw(Refused(f"{text}; see --help"))
    ap.add_argument("-c", dest="cpus", type=int, default=4, metavar="N",
                    help="possible CPUs (4)")
    ap.add_argument("-m", dest="online", type=int, metavar="N",
                    help="CPUs online (all)")
    ap.add_argument("-t", dest="limit", type=float, metavar="SECONDS",
                    help="time limit, boot included (300; with -i none)")
    ap.add_argument("-M", dest="memory", type=size, default="1G", metavar="SIZE",
                    help="memory, with K, M or G behind the number (1G)")
    ap.add_argument("-o", dest="out", type=pathlib.Path, metavar="DIR",
                    help="results directory, emptied first (build/results/SCRIPT)")
    ap.add_argument("-k", dest="kernel", default="normal", metavar="KERNEL",
                    help="a kernel that lab/build made, or a path (normal)")
    ap.add_argument("-a", dest="append", action="append", default=[], metavar="ARG",
                    help="one more argument for the kernel")
    ap.add_argument("-i", dest="interactive", action="store_true",
                    help="the job has this terminal, and its exit code doesn't count")
    ap.add_argument("job", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG ...]",
                    help="what to run in there")
    opts = ap.parse_args()
    if opts.limit is None:
        opts.limit = float("inf") if opts.interactive else 300
    if not opts.job:
        raise Refused("no script to run; see --help")
    opts.job[0] = shutil.which(opts.job[0]) or opts.job[0]
    if not os.access(opts.job[0], os.X_OK):
        raise Refused(f"{opts.job[0]} isn't an executable file")
    opts.job[0] = os.path.abspath(opts.job[0])
    opts.out = (opts.out or TOP / "build/results" / os.path.basename(opts.job[0])).absolute()
    if re.search(r"[\s\"]", f"{opts.out}{TOP}"):
        raise Refused(f"a kernel's command line can't hold the blanks in {opts.out}")
    return opts


def prepare(opts):
    """Empty the results directory and leave the job there."""
    out = opts.out
    if out.exists() and any(out.iterdir()) and not (out / "job").exists():
        raise Refused(f"{out} holds something else than results; name another one with -o")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    cwd = os.getcwd()
    keep = {str(TOP), cwd, os.path.dirname(opts.job[0])}
    (out / "job").write_text(
        f"job=({shlex.join(opts.job)})\n"
        f"dir={shlex.quote(cwd)}\n"
        f"keep=({shlex.join(sorted(keep))})\n"
        f"tty={'/dev/tty0' if opts.interactive else ''}\n")


def children():
    """Ids of the processes whose parent is this one."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            if parent == os.getpid():
                yield int(entry.name)


def end_all():
    """Kill what we started. Orphans of the killed become ours: go on until none."""
    while pids := list(children()):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in pids:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


class Follow:
    """Hands on what a growing file gained."""
    def __init__(self, path, to):
        self.path, self.to, self.file = path, to, None

    def __call__(self):
        if not self.file and self.path.exists():
            self.file = open(self.path, "rb")
        if self.file and (data := self.file.read()):
            self.to.buffer.write(data)
            self.to.flush()


def lines(path):
    try:
        return path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []


def splats(log):
    """The reports in a kernel log, a few lines each."""
    found, until = [], 0
    for i, line in enumerate(log):
        if SPLATS.search(line) and not any(re.fullmatch(p, line) for p, _, _ in ALLOWED):
            found += log[max(i, until):i + 25]
            until = max(until, i + 25)
    return found


def tell(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)


def judge(opts, timed_out):
    """Look at what came back, say what is wrong, return the verdict."""
    out = opts.out
    log = lines(out / "dmesg")
    known = set(log)
    log += [line for line in lines(out / "console") if line not in known]
    reports = splats(log)
    leaks = lines(out / "leaks")
    code = "".join(lines(out / "exit"))
    if reports:
        tell("the kernel reports:\n" + "\n".join(reports[:100]))
    if leaks:
        tell("memory leaked:\n" + "\n".join(leaks[:100]))
    if timed_out or not code.isdigit():
        tell(f"time-out after {opts.limit:g} s" if timed_out else
             "the machine ended before its job did")
        if not reports:
            tell("the console's last lines:\n" + "\n".join(log[-25:]))
        return TIMEOUT if timed_out else CRASHED
    if reports or leaks:
        return SPLAT
    return GOOD if code == "0" or opts.interactive else FAILED


def run(opts, argv, fds=(), env=None):
    """Start a machine with argv, see it through, return the verdict."""
    def dies_with_us():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def interrupted(number, _):
        raise SystemExit(128 + number)

    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        signal.signal(number, interrupted)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    follow = Follow(opts.out / "stdout", sys.stdout), Follow(opts.out / "stderr", sys.stderr)
    deadline = time.monotonic() + opts.limit
    timed_out = False
    try:
        with open(opts.out / "console", "ab") as console:
            machine = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console,
                                       stderr=console, pass_fds=fds, env=env, cwd=opts.out,
                                       start_new_session=True, preexec_fn=dies_with_us)
        while machine.poll() is None:
            timed_out = time.monotonic() > deadline
            if timed_out:
                break
            time.sleep(0.05)
            for copy in follow:
                copy()
    finally:
        end_all()
    for copy in follow:
        copy()
    return judge(opts, timed_out)


def main(doc, start):
    """A runner's main(): options in, exit code out."""
    try:
        opts = options(doc)
        sys.exit(start(opts))
    except (Refused, argparse.ArgumentError) as why:
        tell(why)
        sys.exit(NOSTART)
