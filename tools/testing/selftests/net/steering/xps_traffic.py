#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0

"""
Where packets go: the transmit queue of each packet against the XPS masks.

A sender is pinned to a CPU and opens a new connected UDP socket for each flow,
since a connected socket keeps the queue that its first packet was given. The
expected counts follow from four rules:

  - a CPU that one queue's mask names sends on that queue
  - a CPU that several masks name spreads its flows over these queues by hash
  - a CPU that no mask names spreads its flows over all queues by hash
  - with traffic classes each of these holds within the class of the packet

"By hash" is checked with 64 flows: each of four queues must have some, which
fails by chance less than once in ten million runs.
"""

import fcntl
import os
import socket
import struct
import threading
from pathlib import Path

from steering import CmdExitFailure, KsftNamedVariant, KsftSkipEx
from steering import NetdevSimDev, QUEUES, SteeringDev, cpus, pinned
from steering import defer, ip, ksft_eq, ksft_exit, ksft_gt, ksft_run
from steering import ksft_true, ksft_variants, some_offline, tc

LOCAL = "192.0.2.1"
PEER = "192.0.2.2"
PEER_MAC = "02:00:00:00:00:02"
PORT = 9

FLOWS = 16
MANY_FLOWS = 64

# Masks name these CPUs; those of them that are online send.
CPUS = range(4)


def _senders():
    """ The CPUs that are named in masks and can send """
    if not cpus("possible").issuperset(CPUS):
        raise KsftSkipEx(f"needs {len(CPUS)} possible CPUs")
    senders = sorted(cpus("online").intersection(CPUS))
    if len(senders) < 2:
        raise KsftSkipEx("needs two CPUs online")
    return senders


def _up(ifname, local, peer):
    """ Bring a device up so that nothing is sent that the test didn't send """
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{ifname}/disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1", encoding="ascii")
    ip(f"addr add {local}/24 dev {ifname}")
    ip(f"link set {ifname} up")
    ip(f"neigh add {peer} lladdr {PEER_MAC} dev {ifname} nud permanent")


def _send(cpu, flows, packets=1, prio=0):
    """ New flows from one CPU """
    with pinned(cpu):
        for _ in range(flows):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, prio)
                sock.connect((PEER, PORT))
                for _ in range(packets):
                    sock.send(b"x")


def _queues_of(cfg, cpu, flows=FLOWS, **kwargs):
    """ Where new flows from one CPU go: packets by queue """
    before = cfg.sent()
    _send(cpu, flows, **kwargs)
    return cfg.sent_since(before, flows * kwargs.get("packets", 1))


def _check_spread(used, queues, total, comment):
    """ Each of these queues has some, no other has any, none is lost """
    ksft_eq(sorted(used), sorted(queues), f"queues used, {comment}")
    ksft_eq(sum(used.values()), total, f"packets in all, {comment}")


@ksft_variants([
    KsftNamedVariant("in_order", [0, 1, 2, 3]),
    KsftNamedVariant("reversed", [3, 2, 1, 0]),
    KsftNamedVariant("crossed", [2, 0, 3, 1]),
    KsftNamedVariant("two_queues_idle", [1, 2, 1, 2]),
    KsftNamedVariant("all_on_first", [0, 0, 0, 0]),
    KsftNamedVariant("all_on_last", [3, 3, 3, 3]),
])
def one_queue_per_cpu(cfg, queue_of):
    """ CPU n sends on queue_of[n], and nowhere else """
    senders = _senders()
    cfg.set_all([{cpu for cpu in CPUS if queue_of[cpu] == queue}
                 for queue in range(QUEUES)])
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {queue_of[cpu]: FLOWS}, f"CPU {cpu}")


def list_form(cfg):
    """ A mask steers the same, whichever form it was written in """
    senders = _senders()
    cfg.set_all([{3 - queue} for queue in range(QUEUES)], "xps_cpus_list")
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {3 - cpu: FLOWS}, f"CPU {cpu}")


def no_masks(cfg):
    """ With no mask at all flows are spread over all queues """
    for cpu in _senders():
        _check_spread(_queues_of(cfg, cpu, MANY_FLOWS), range(QUEUES),
                      MANY_FLOWS, f"CPU {cpu}")


def cpu_without_mask(cfg):
    """ A CPU that no mask names uses all queues, and loses nothing """
    named, *others = _senders()
    cfg.set_all([[], [], [], {named}])
    ksft_eq(_queues_of(cfg, named), {3: FLOWS}, f"CPU {named}")
    for cpu in others:
        _check_spread(_queues_of(cfg, cpu, MANY_FLOWS), range(QUEUES),
                      MANY_FLOWS, f"CPU {cpu}")


@ksft_variants([
    KsftNamedVariant("two", [0, 2]),
    KsftNamedVariant("three", [0, 1, 3]),
    KsftNamedVariant("all", [0, 1, 2, 3]),
])
def cpu_on_several_queues(cfg, queues):
    """ Flows of a CPU that several masks name are spread over just these """
    first, *others = _senders()
    # The others are on queue 1, alone or beside the first.
    cfg.set_all([({first} if queue in queues else set()) |
                 (set(others) if queue == 1 else set())
                 for queue in range(QUEUES)])
    _check_spread(_queues_of(cfg, first, MANY_FLOWS), queues, MANY_FLOWS,
                  f"CPU {first}")
    for cpu in others:
        ksft_eq(_queues_of(cfg, cpu), {1: FLOWS}, f"CPU {cpu}")


def flow_stays_connected(cfg):
    """ Packets of a connected socket are all on one of a CPU's queues """
    cpu = _senders()[0]
    cfg.set_all([{cpu}, [], {cpu}, []])
    for _ in range(8):
        used = _queues_of(cfg, cpu, flows=1, packets=8)
        ksft_eq(list(used.values()), [8], f"queues used: {used}")


def _frame(src_mac, dst_mac, src, dst):
    """ An Ethernet frame with a UDP datagram of one byte, no UDP checksum """
    udp = struct.pack("!HHHH", src[1], dst[1], 9, 0) + b"x"
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64,
                       socket.IPPROTO_UDP, 0, socket.inet_aton(src[0]),
                       socket.inet_aton(dst[0]))
    check = sum(struct.unpack("!10H", head))
    while check >> 16:
        check = (check & 0xffff) + (check >> 16)
    head = head[:10] + struct.pack("!H", check ^ 0xffff) + head[12:]
    return b"".join((bytes.fromhex(dst_mac.replace(":", "")),
                     bytes.fromhex(src_mac.replace(":", "")),
                     b"\x08\x00", head, udp))


def flow_stays_looked_up(cfg):
    """
    The same when no socket keeps the queue: frames of a packet socket are
    looked up one by one, and the same flow must find the same queue.
    """
    cpu = _senders()[0]
    cfg.set_all([{cpu}, [], {cpu}, []])
    frames = [_frame(PEER_MAC, PEER_MAC, (LOCAL, 1024 + flow), (PEER, PORT))
              for flow in range(MANY_FLOWS)]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((cfg.ifname, 0))
        rounds = []
        for _ in range(4):
            before = cfg.sent()
            with pinned(cpu):
                for frame in frames:
                    sock.send(frame)
            rounds.append(cfg.sent_since(before, MANY_FLOWS))
    _check_spread(rounds[0], [0, 2], MANY_FLOWS, "first round")
    ksft_eq(rounds, rounds[:1] * 4, "each round like the first")


def refused_writes_move_nothing(cfg):
    """ After writes that failed each CPU sends where it did before """
    senders = _senders()
    cfg.set_all([{cpu} for cpu in CPUS])
    for queue in range(QUEUES):
        for text in ("zz\n", "1," + "00000000," * 200 + "0\n", "f" * 5000):
            result = cfg.write(queue, "xps_cpus", text)
            ksft_true(result.startswith("E"), f"{text[:20]!r}: {result}")
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {cpu: FLOWS}, f"CPU {cpu}")


def mask_cleared(cfg):
    """ A CPU whose mask is taken away goes back to all queues """
    first, second, *_ = _senders()
    cfg.set_all([[], {first}, {second}, []])
    cfg.set(1, [])
    _check_spread(_queues_of(cfg, first, MANY_FLOWS), range(QUEUES),
                  MANY_FLOWS, f"CPU {first}")
    ksft_eq(_queues_of(cfg, second), {2: FLOWS}, f"CPU {second}")


class _Flood(threading.Thread):
    """
    A sender on one CPU that doesn't end by itself. Its socket isn't connected,
    so that each packet is looked up.
    """

    def __init__(self, cpu):
        super().__init__(daemon=True)
        self.cpu = cpu
        self.packets = 0
        self.sending = threading.Event()
        self.ending = threading.Event()

    def run(self):
        os.sched_setaffinity(0, {self.cpu})
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            while not self.ending.is_set():
                sock.sendto(b"x", (PEER, PORT))
                self.packets += 1
                self.sending.set()

    def stop(self):
        """ Returns when the last packet has been sent """
        self.ending.set()
        self.join()


def rewritten_under_traffic(cfg):
    """
    While all other CPUs send, the last one is moved between two queues. When
    the write has returned its new flows are on the new queue; the others never
    leave theirs, though the map is replaced beneath them.
    """
    *others, moving = _senders()
    home = {cpu: number % 2 for number, cpu in enumerate(others)}
    cfg.set_all([{cpu for cpu in others if home[cpu] == queue}
                 for queue in range(2)] + [{moving}, []])

    before = cfg.sent()
    floods = []
    for cpu in others:
        floods.append(_Flood(cpu))
        floods[-1].start()
        defer(floods[-1].stop)
        ksft_true(floods[-1].sending.wait(10), f"CPU {cpu} sends")

    # Unequal numbers, so that flows that come one move late show.
    expected = {0: 0, 1: 0, 2: 0, 3: 0}
    old, new = 2, 3
    for turn in range(40):
        cfg.set(new, {moving})
        cfg.set(old, [])
        flows = 1 + 2 * (turn % 2)
        _send(moving, flows)
        expected[new] += flows
        old, new = new, old

    for flood in floods:
        flood.stop()
        ksft_gt(flood.packets, 0, f"packets from CPU {flood.cpu}")
        expected[home[flood.cpu]] += flood.packets
    used = cfg.sent_since(before, sum(expected.values()))
    ksft_eq(used, {queue: packets for queue, packets in expected.items()
                   if packets})


def fewer_queues(cfg):
    """
    With two queues taken away their CPUs use those that are left; with the
    queues back they use their own again.
    """
    senders = _senders()
    # The CPUs that send are shared out between queues that stay and that go.
    queue_of = dict(zip(senders, [3, 0, 2, 1]))
    cfg.set_all([{cpu for cpu in senders if queue_of[cpu] == queue}
                 for queue in range(QUEUES)])
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {queue_of[cpu]: FLOWS}, f"CPU {cpu}")
    before = cfg.sent()

    cfg.channels(2)
    for cpu in senders:
        if queue_of[cpu] < 2:
            ksft_eq(_queues_of(cfg, cpu), {queue_of[cpu]: FLOWS},
                    f"CPU {cpu}, two queues")
        else:
            _check_spread(_queues_of(cfg, cpu, MANY_FLOWS), range(2),
                          MANY_FLOWS, f"CPU {cpu}, its queue taken away")

    cfg.channels(QUEUES)
    after = cfg.sent()
    ksft_eq({queue: after[queue] - before[queue] for queue in (2, 3)},
            {2: 0, 3: 0}, "packets on queues that were not there")
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {queue_of[cpu]: FLOWS},
                f"CPU {cpu}, all queues back")


def queue_removed_under_traffic(cfg):
    """
    Queues go away and come back while all CPUs send. A qdisc is emptied when
    its queue goes, so nothing is said of the totals; what counts is that each
    CPU is on its own queue when it is over.
    """
    senders = _senders()
    cfg.set_all([{cpu} for cpu in CPUS])
    floods = []
    for cpu in senders:
        floods.append(_Flood(cpu))
        floods[-1].start()
        defer(floods[-1].stop)
        ksft_true(floods[-1].sending.wait(10), f"CPU {cpu} sends")
    for count in (2, QUEUES, 1, QUEUES, 3, QUEUES):
        cfg.channels(count)
    for flood in floods:
        flood.stop()
        ksft_gt(flood.packets, 0, f"packets from CPU {flood.cpu}")
    cfg.wait_idle()
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {cpu: FLOWS}, f"CPU {cpu}")


def _mqprio(cfg):
    """ Two classes: priority 0 on queues 0 and 1, priority 1 on 2 and 3 """
    try:
        tc(f"qdisc replace dev {cfg.ifname} root mqprio num_tc 2 "
           "map 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 2@0 2@2 hw 0")
    except CmdExitFailure as err:
        if "kind is unknown" not in err.cmd.stderr:
            raise
        raise KsftSkipEx("no mqprio") from err
    return defer(tc, f"qdisc del dev {cfg.ifname} root")


def _class_sets():
    """ Each CPU has one queue in each class, and not the same one in both """
    even, odd = {0, 2}, {1, 3}
    return [even, odd, odd, even], \
        lambda cpu, prio: prio * 2 + (cpu % 2 ^ prio)


def classes(cfg):
    """ A packet takes the queue that its class has for its CPU """
    senders = _senders()
    _mqprio(cfg)
    sets, queue_of = _class_sets()
    cfg.set_all(sets)
    for prio in (0, 1):
        for cpu in senders:
            ksft_eq(_queues_of(cfg, cpu, prio=prio),
                    {queue_of(cpu, prio): FLOWS}, f"CPU {cpu} class {prio}")


def class_without_mask(cfg):
    """ Masks of one class say nothing about the other: hash within that """
    senders = _senders()
    _mqprio(cfg)
    cfg.set_all([set(CPUS), [], [], []])
    for cpu in senders:
        ksft_eq(_queues_of(cfg, cpu), {0: FLOWS}, f"CPU {cpu} class 0")
        _check_spread(_queues_of(cfg, cpu, MANY_FLOWS, prio=1), [2, 3],
                      MANY_FLOWS, f"CPU {cpu} class 1")


def masks_outlive_classes(cfg):
    """ Classes come and go, the masks stay and steer """
    senders = _senders()
    sets, queue_of = _class_sets()
    cfg.set_all(sets)
    masks = cfg.masks()

    drop = _mqprio(cfg)
    cfg.check_unchanged(masks)
    for prio in (0, 1):
        for cpu in senders:
            ksft_eq(_queues_of(cfg, cpu, prio=prio),
                    {queue_of(cpu, prio): FLOWS}, f"CPU {cpu} class {prio}")

    drop.exec()
    cfg.check_unchanged(masks)
    for cpu in senders:
        _check_spread(_queues_of(cfg, cpu, MANY_FLOWS),
                      [queue_of(cpu, 0), queue_of(cpu, 1)], MANY_FLOWS,
                      f"CPU {cpu} without classes")


def cpu_comes_online(cfg):
    """ A CPU that was offline when its mask was written sends by it """
    cpu = min(some_offline())
    knob = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    if not knob.exists():
        raise KsftSkipEx(f"CPU {cpu} can't be brought online")
    cfg.set_all([[], [], {cpu}, []])
    knob.write_text("1", encoding="ascii")
    defer(knob.write_text, "0", encoding="ascii")
    ksft_eq(_queues_of(cfg, cpu), {2: FLOWS}, f"CPU {cpu}")


TUNSETIFF = 0x400454ca
IFF_TAP = 0x0002
IFF_MULTI_QUEUE = 0x0100
IFF_NO_PI = 0x1000


def _tap(ifname):
    """ A tap device; what is written to the n-th fd comes in on rx queue n """
    fds = []
    request = struct.pack("16sH22x", ifname.encode(),
                          IFF_TAP | IFF_MULTI_QUEUE | IFF_NO_PI)
    for _ in range(QUEUES):
        try:
            fds.append(os.open("/dev/net/tun", os.O_RDWR))
        except FileNotFoundError as err:
            raise KsftSkipEx("no tap devices") from err
        defer(os.close, fds[-1])
        fcntl.ioctl(fds[-1], TUNSETIFF, request)
    return fds


def rx_queue_map(_cfg):
    """
    A reply takes the tx queue that is mapped to the rx queue which the
    question came by; where none is mapped it takes the queue of the CPU.

    For that a driver must record the rx queue in the packet and leave the
    choice of the tx queue to the stack. Among the software ones tap does the
    first, macvlan the second, so the device is a macvlan on top of a tap.
    """
    cpu = _senders()[0]
    local, peer, mac = "198.51.100.1", "198.51.100.2", "02:00:00:00:00:01"
    fds = _tap("steer0")
    ip("link set steer0 up")
    ip(f"link add link steer0 name steer1 numtxqueues {QUEUES} "
       f"numrxqueues {QUEUES} address {mac} type macvlan")
    _up("steer1", local, peer)
    tc("qdisc replace dev steer1 root mq")
    dev = SteeringDev("steer1")

    # rx queue n goes to tx queue 3 - n: for 0 it is the CPU's
    dev.set_all([{3}, {2}, {1}, []], "xps_rxqs")
    dev.set_all([[], [], [], {cpu}])
    for rxq in range(QUEUES):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((local, 0))
            sock.connect((peer, PORT))
            sock.settimeout(10)
            os.write(fds[rxq], _frame(PEER_MAC, mac, (peer, PORT),
                                      sock.getsockname()))
            ksft_eq(sock.recv(16), b"x", f"by rx queue {rxq}")
            before = dev.sent()
            with pinned(cpu):
                for _ in range(FLOWS):
                    sock.send(b"y")
            ksft_eq(dev.sent_since(before, FLOWS), {3 - rxq: FLOWS},
                    f"replies to rx queue {rxq}")


def main():
    """ All tests on one netdevsim; the one that receives makes its own """
    with NetdevSimDev(queue_count=QUEUES) as nsimdev:
        cfg = SteeringDev(nsimdev.nsims[0].ifname)
        _up(cfg.ifname, LOCAL, PEER)
        ksft_run([one_queue_per_cpu, list_form, no_masks, cpu_without_mask,
                  cpu_on_several_queues, flow_stays_connected,
                  flow_stays_looked_up, refused_writes_move_nothing,
                  mask_cleared, rewritten_under_traffic, fewer_queues,
                  queue_removed_under_traffic, classes, class_without_mask,
                  masks_outlive_classes, cpu_comes_online, rx_queue_map],
                 args=(cfg, ))
    ksft_exit()


if __name__ == "__main__":
    main()
