# SPDX-License-Identifier: GPL-2.0

"""
What the packet steering tests have in common: a device with several transmit
queues, the mask files of its queues, and packets counted queue by queue.

The device is a netdevsim without a peer. A packet sent on it passes the qdisc
of the queue that was chosen for it, is counted there, and is then dropped by
the driver. The statistics of netdevsim itself book everything on queue 0, so
the counts are those of the children of the mq or mqprio qdisc. Whoever brings
the device up turns IPv6 off and sets a static neighbour: then nothing but the
packets of the test is sent, and counts can be compared exactly.

All that these tests know about a CPU is its number: masks name possible CPUs,
traffic is sent from those that are online.
"""

import contextlib
import ctypes
import errno
import os
import sys
from pathlib import Path

KSFT_DIR = (Path(__file__).parent / "../..").resolve()

try:
    sys.path.append(KSFT_DIR.as_posix())

    # pylint: disable-next=no-name-in-module
    from net.lib.py import CmdExitFailure, KsftNamedVariant, KsftSkipEx
    from net.lib.py import NetdevSimDev, UserNetNS
    from net.lib.py import cmd, defer, ethtool, ip, tc
    from net.lib.py import ksft_busy_wait, ksft_eq, ksft_exit, ksft_gt, ksft_in
    from net.lib.py import ksft_run, ksft_true, ksft_variants
except ModuleNotFoundError as missing:
    print(f"1..0 # SKIP the networking test library is not there: {missing}")
    sys.exit(4)

__all__ = ["CmdExitFailure", "KsftNamedVariant", "KsftSkipEx",
           "NetdevSimDev", "UserNetNS", "cmd", "defer", "ethtool", "ip", "tc",
           "ksft_busy_wait", "ksft_eq", "ksft_exit", "ksft_gt", "ksft_in",
           "ksft_run", "ksft_true", "ksft_variants",
           "QUEUES", "SteeringDev", "cpus", "list_text", "mask_text",
           "nr_cpu_ids", "pinned", "some_offline", "without_net_admin",
           "write_once", "write_open"]

QUEUES = 4

SYS_CPU = Path("/sys/devices/system/cpu")

CAP_NET_ADMIN = 12
CAP_VERSION_3 = 0x20080522


def cpus(state):
    """ The set of CPUs that are "possible", "online"... """
    found = set()
    for part in (SYS_CPU / state).read_text(encoding="ascii").split(","):
        if part.strip():
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


def nr_cpu_ids():
    """ The width of a CPU mask in bits, as the kernel has it """
    return max(cpus("possible")) + 1


def mask_text(ids, width):
    """ A set of ids as the kernel prints a mask of @width bits """
    digits = f"{sum(1 << i for i in set(ids)):0{(width + 3) // 4}x}"
    head = len(digits) % 8
    groups = [digits[:head]] if head else []
    groups += [digits[i:i + 8] for i in range(head, len(digits), 8)]
    return ",".join(groups)


def list_text(ids):
    """ A set of ids as the kernel prints a list """
    runs = []
    for i in sorted(set(ids)):
        if runs and runs[-1][1] == i - 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _name_of(error):
    """ Of the two names of one number Python has the other one """
    if error.errno == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"
    return errno.errorcode[error.errno]


def write_open(handle, text):
    """ Write @text to an open file in one system call: "OK", or the error """
    try:
        done = os.write(handle, text.encode())
    except OSError as err:
        return _name_of(err)
    return "OK" if done == len(text) else f"only {done} of {len(text)} taken"


def write_once(path, text):
    """ Open a file for writing, then the same """
    try:
        handle = os.open(path, os.O_WRONLY)
    except OSError as err:
        return _name_of(err)
    try:
        return write_open(handle, text)
    finally:
        os.close(handle)


@contextlib.contextmanager
def pinned(cpu):
    """ Run the body, and what it starts, on one CPU """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def without_net_admin():
    """ Run the body as root without CAP_NET_ADMIN """
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(CAP_VERSION_3, 0)
    # effective, permitted and inheritable of capabilities 0 to 31, then 32 up
    caps = (ctypes.c_uint32 * 6)()

    def call(func):
        if func(head, caps):
            raise OSError(ctypes.get_errno(), f"{func.__name__} failed")

    call(libc.capget)
    effective = caps[0]
    caps[0] = effective & ~(1 << CAP_NET_ADMIN)
    call(libc.capset)
    try:
        yield
    finally:
        caps[0] = effective
        call(libc.capset)


def some_offline():
    """
    The CPUs that are possible and not online. Where all are online one is
    taken offline for the time of the test.
    """
    offline = cpus("possible") - cpus("online")
    if offline:
        return offline
    for cpu in sorted(cpus("online"), reverse=True):
        knob = SYS_CPU / f"cpu{cpu}/online"
        if knob.exists():
            knob.write_text("0", encoding="ascii")
            defer(knob.write_text, "1", encoding="ascii")
            return {cpu}
    raise KsftSkipEx("all CPUs are online, and none can be taken offline")


class SteeringDev:
    """ A network device, its queues' mask files and its queues' counters """

    def __init__(self, ifname):
        self.ifname = ifname
        self.queues_dir = Path(f"/sys/class/net/{ifname}/queues")
        # The widths of the masks. All rx queues are in use at this point.
        self.bits = {
            "xps_cpus": nr_cpu_ids(),
            "xps_cpus_list": nr_cpu_ids(),
            "xps_rxqs": len(list(self.queues_dir.glob("rx-*"))),
        }

    def path(self, queue, name):
        """ Where the file @name of a tx queue is """
        return self.queues_dir / f"tx-{queue}" / name

    def read(self, queue, name):
        """ The content of a file; the one newline that must end it is cut """
        text = self.path(queue, name).read_text(encoding="ascii")
        ksft_eq(text[-1:], "\n", f"end of tx-{queue}/{name}")
        return text[:-1]

    def write(self, queue, name, text):
        """ Like write_once() to a file of a tx queue """
        return write_once(self.path(queue, name), text)

    def text(self, name, ids):
        """ What the file @name of any queue reads when it holds @ids """
        if name == "xps_cpus_list":
            return list_text(ids)
        return mask_text(ids, self.bits[name])

    def set(self, queue, ids, name="xps_cpus"):
        """ Give a queue its CPUs, or rx queues; that must succeed """
        ksft_eq(self.write(queue, name, self.text(name, ids) + "\n"), "OK",
                f"writing {sorted(ids)} to tx-{queue}/{name}")

    def set_all(self, sets, name="xps_cpus"):
        """ Give each queue, from 0 up, its set, until the end of the test """
        defer(self.clear)
        for queue, ids in enumerate(sets):
            self.set(queue, ids, name)

    def clear(self):
        """ Leave no mask on any queue """
        for queue in range(len(list(self.queues_dir.glob("tx-*")))):
            for name in ("xps_cpus", "xps_rxqs"):
                self.set(queue, [], name)

    def masks(self):
        """ All that can be read in the tx queues' steering files """
        return {f"{path.parent.name}/{path.name}":
                path.read_text(encoding="ascii")
                for path in sorted(self.queues_dir.glob("tx-*/xps_*"))}

    def check_unchanged(self, before, besides=()):
        """ Compare masks() with an earlier one, some files excepted """
        after = self.masks()
        changed = {name: f"{before.get(name)!r} -> {after.get(name)!r}"
                   for name in sorted(before.keys() | after.keys())
                   if before.get(name) != after.get(name)
                   and name not in besides}
        ksft_eq(changed, {}, "files that were to stay as they were")

    def channels(self, count):
        """ Change the number of queues in use, until the end of the test """
        defer(ethtool, f"-L {self.ifname} combined {QUEUES}")
        ethtool(f"-L {self.ifname} combined {count}")

    def _per_queue(self, what):
        """ One of the figures of each queue's qdisc """
        figures = {}
        for qdisc in tc(f"-s qdisc show dev {self.ifname}", json=True):
            _, colon, minor = qdisc.get("parent", "").partition(":")
            if colon:
                figures[int(minor, 16) - 1] = qdisc[what]
        return figures

    def sent(self):
        """ Packets sent so far by each of the queues in use """
        return self._per_queue("packets")

    def wait_idle(self):
        """ Wait until no packet is queued """
        ksft_busy_wait(lambda: not any(self._per_queue("qlen").values()),
                       deadline=10, comment="queues to be empty")

    def sent_since(self, before, total, queues=range(QUEUES)):
        """
        Which of @queues sent how many packets since @before, without those
        that sent none. Waits for @total of them: a packet that found another
        sender at work in the qdisc is sent, and counted, a little later.
        """
        new = {}

        def counted():
            new.clear()
            new.update({queue: packets - before.get(queue, 0)
                        for queue, packets in self.sent().items()
                        if queue in queues})
            return sum(new.values()) >= total

        ksft_busy_wait(counted, deadline=10,
                       comment=f"{total} packets to be counted")
        return {queue: packets for queue, packets in new.items() if packets}
