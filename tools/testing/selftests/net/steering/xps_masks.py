#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0

"""
The XPS files of a transmit queue: what they take, what they refuse and why,
and what they read afterwards.

  xps_cpus       mask of CPUs, nr_cpu_ids bits
  xps_cpus_list  the same set in list form
  xps_rxqs       mask of rx queues, num_rx_queues bits

What is written is what is read, or the write fails and no file changes. That
is the whole model, so each write here is between two readings of all files of
all queues. Formats stand in tables, one result for each row and file. A row
gives the text and the ids it stands for; where one of these is beyond the
width of the mask the write must fail with EOVERFLOW, so the same table serves
for machines of any size.
"""

import os

from steering import KsftNamedVariant, NetdevSimDev, SteeringDev, UserNetNS
from steering import QUEUES, cpus, list_text, nr_cpu_ids, some_offline
from steering import cmd, defer, ip, ksft_eq, ksft_exit, ksft_in, ksft_run
from steering import ksft_variants, mask_text, without_net_admin, write_open

MASK_FILES = ("xps_cpus", "xps_rxqs")
FILES = ("xps_cpus", "xps_cpus_list", "xps_rxqs")

PAGE = os.sysconf("SC_PAGE_SIZE")

# The queue that is written to. The others look on.
QUEUE = 1

MASKS = [
    # name, text, ids
    ("zero", "0\n", []),
    ("empty_line", "\n", []),
    ("zero_group", "00000000\n", []),
    ("many_zero_groups", "00000000,00000000,00000000,00000000\n", []),
    ("one", "1\n", [0]),
    ("two_bits", "3\n", [0, 1]),
    ("four_bits", "f\n", range(4)),
    ("upper_case", "F\n", range(4)),
    ("no_newline", "5", [0, 2]),
    ("fifth_bit", "10\n", [4]),
    ("eight_bits", "ff\n", range(8)),
    ("padded_group", "0000000f\n", range(4)),
    ("full_group", "ffffffff\n", range(32)),
    ("zero_group_first", "00000000,00000003\n", [0, 1]),
    ("short_zero_group_first", "0,3\n", [0, 1]),
    ("eight_zero_groups_first", "00000000," * 8 + "0000000a\n", [1, 3]),
    ("second_group", "1,00000000\n", [32]),
    ("short_second_group", "1,0\n", [32]),
    ("two_full_groups", "ffffffff,ffffffff\n", range(64)),
    ("comma_last", "3,\n", [0, 1]),
    ("blanks_around", " 3 \n", [0, 1]),
    ("blank_between_groups", "0 3\n", [0, 1]),
    ("carriage_return", "3\r\n", [0, 1]),
    ("nul_last", "3\0", [0, 1]),
    ("third_group", "1,00000000,00000000\n", [64]),
    ("third_group_after_zeros", "0,0,1,00000000,00000000\n", [64]),
    ("some_of_it_beyond", "ffffffff,00000000,00000003\n", range(64, 96)),
]

NOT_MASKS = [
    ("letters", "zz\n"),
    ("g", "g\n"),
    ("minus", "-1\n"),
    ("0x", "0x3\n"),
    ("range", "3-4\n"),
    ("all", "all\n"),
    ("dot", "1.0\n"),
    ("garbage_group_first", "zz,00000001\n"),
    ("garbage_group_last", "00000001,zz\n"),
    ("second_line", "1\n2\n"),
    ("nul_inside", "1\0zz\n"),
]

LISTS = [
    ("empty_line", "\n", []),
    ("zero", "0\n", [0]),
    ("one_cpu", "3\n", [3]),
    ("range", "0-3\n", range(4)),
    ("range_of_one", "1-1\n", [1]),
    ("two_cpus", "0,2\n", [0, 2]),
    ("unordered", "2,0\n", [0, 2]),
    ("twice_the_same", "0-1,1\n", [0, 1]),
    ("groups", "0-2:1/2\n", [0, 2]),
    ("no_newline", "1,3", [1, 3]),
    ("up_to_seven", "0-7\n", range(8)),
    ("cpu_64", "64\n", [64]),
    ("some_of_it_beyond", "0,1000000\n", [0, 1000000]),
    ("range_to_far_beyond", "0-1000000\n", [0, 1000000]),
    ("more_than_32_bits", "4294967296\n", [4294967296]),
    ("far_too_large", "99999999999\n", [99999999999]),
    ("last_too_large", "0,99999999999\n", [99999999999]),
]

NOT_LISTS = [
    ("letter", "a\n"),
    ("hex", "0x1\n"),
    ("minus", "-1\n"),
    ("reversed", "3-1\n"),
    ("open_range", "0-\n"),
    ("chain", "0-1-2\n"),
    ("half_a_group", "0-3:1\n"),
    ("empty_group", "0-3:1/0\n"),
    ("overfull_group", "0-3:3/2\n"),
    ("garbage_last", "1,,x\n"),
    ("garbage_first", "x,1\n"),
    ("semicolon", "0;1\n"),
    ("second_line", "1\nzz\n"),
    ("second_list", "1\n2\n"),
    ("nul_inside", "1\0zz\n"),
]

# A page or more. The first page of the second one is a mask by itself, which
# is what a kernel that splits the text takes.
TOO_LONG = {
    "5000_zeros": "0" * 4999 + "f",
    "mask_then_5000": "3\n" + "0" * 4998,
    "one_page": "0," * (PAGE // 2 - 1) + "3\n",
    "list_of_5000": "1," * 2500,
}

# A character less than a page
LONGEST = {
    "many_groups": "0," * (PAGE // 2 - 2) + "03\n",
    "one_group": "0" * (PAGE - 3) + "3\n",
}
LONGEST_LIST = "0," * (PAGE // 2 - 2) + "01\n"


def _rows(table, files):
    for name in files:
        for label, *row in table:
            yield KsftNamedVariant(f"{name}_{label}", name, *row)


def _boundary_rows():
    """ The same for all widths, told from nr_cpu_ids or the rx queues """
    for name in FILES:
        width = QUEUES if name == "xps_rxqs" else nr_cpu_ids()
        text = list_text if name == "xps_cpus_list" else \
            lambda ids, width=width: mask_text(ids, max(width, max(ids) + 1))
        for label, ids in (("last", [width - 1]),
                           ("every", range(width)),
                           ("first_beyond", [width]),
                           ("every_and_one", range(width + 1)),
                           ("next_group", [width + 32])):
            yield KsftNamedVariant(f"{name}_{label}", name,
                                   text(ids) + "\n", ids)


def _fill(cfg):
    """ Masks that differ from queue to queue, and overlap """
    width = cfg.bits["xps_cpus"]
    cfg.set_all([{q % width, (q + 1) % width} for q in range(QUEUES)])
    cfg.set_all([{q, (q + 2) % QUEUES} for q in range(QUEUES)], "xps_rxqs")


def _own_files(name):
    """ The files that a write to @name of QUEUE may change """
    if name == "xps_rxqs":
        return [f"tx-{QUEUE}/xps_rxqs"]
    return [f"tx-{QUEUE}/xps_cpus", f"tx-{QUEUE}/xps_cpus_list"]


def _takes(cfg, name, text, ids):
    before = cfg.masks()
    ksft_eq(cfg.write(QUEUE, name, text), "OK", f"writing {text[:40]!r}")
    ksft_eq(cfg.read(QUEUE, name), cfg.text(name, ids), "as read")
    cfg.check_unchanged(before, besides=_own_files(name))


def _refuses(cfg, name, text, error):
    before = cfg.masks()
    ksft_eq(cfg.write(QUEUE, name, text), error, f"writing {text[:40]!r}")
    cfg.check_unchanged(before)


def _takes_if_it_fits(cfg, name, text, ids):
    _fill(cfg)
    if max(ids, default=0) < cfg.bits[name]:
        _takes(cfg, name, text, ids)
    else:
        _refuses(cfg, name, text, "EOVERFLOW")


@ksft_variants(_rows(MASKS, MASK_FILES))
def mask(cfg, name, text, ids):
    """ Masks, of any number of groups """
    _takes_if_it_fits(cfg, name, text, ids)


@ksft_variants(_rows(NOT_MASKS, MASK_FILES))
def not_a_mask(cfg, name, text):
    """ Text that is no mask """
    _fill(cfg)
    _refuses(cfg, name, text, "EINVAL")


@ksft_variants(_rows(LISTS, ["xps_cpus_list"]))
def cpu_list(cfg, name, text, ids):
    """ CPU lists """
    _takes_if_it_fits(cfg, name, text, ids)


@ksft_variants(_rows(NOT_LISTS, ["xps_cpus_list"]))
def not_a_list(cfg, name, text):
    """ Text that is no CPU list """
    _fill(cfg)
    _refuses(cfg, name, text, "EINVAL")


@ksft_variants([
    KsftNamedVariant("all", "all\n", range(nr_cpu_ids())),
    KsftNamedVariant("last", "N\n", [nr_cpu_ids() - 1]),
    KsftNamedVariant("first_to_last", "0-N\n", range(nr_cpu_ids())),
])
def list_word(cfg, text, ids):
    """ Lists that fit machines of all sizes """
    _fill(cfg)
    _takes(cfg, "xps_cpus_list", text, ids)


@ksft_variants(_boundary_rows())
def boundary(cfg, name, text, ids):
    """ The last id is taken, the first beyond is not """
    _takes_if_it_fits(cfg, name, text, ids)


@ksft_variants([
    KsftNamedVariant(f"{name}_{label}", name, text)
    for name in FILES for label, text in TOO_LONG.items()
])
def too_long(cfg, name, text):
    """ A page or more in one write is refused, not split into two """
    _fill(cfg)
    _refuses(cfg, name, text, "E2BIG")


@ksft_variants([
    KsftNamedVariant(f"{name}_{label}", name, text)
    for name in MASK_FILES for label, text in LONGEST.items()
] + [
    KsftNamedVariant("xps_cpus_list", "xps_cpus_list", LONGEST_LIST),
])
def longest(cfg, name, text):
    """ A character less than a page is not too long """
    ksft_eq(len(text), PAGE - 1)
    _fill(cfg)
    _takes(cfg, name, text, [0, 1])


@ksft_variants([
    KsftNamedVariant("none", []),
    KsftNamedVariant("first", [0]),
    KsftNamedVariant("first_two", [0, 1]),
    KsftNamedVariant("even", range(0, nr_cpu_ids(), 2)),
    KsftNamedVariant("last", [nr_cpu_ids() - 1]),
    KsftNamedVariant("every", range(nr_cpu_ids())),
])
def forms_agree(cfg, ids):
    """ What one form writes the other form reads """
    for written, read in (("xps_cpus", "xps_cpus_list"),
                          ("xps_cpus_list", "xps_cpus")):
        _fill(cfg)
        cfg.set(QUEUE, ids, written)
        ksft_eq(cfg.read(QUEUE, read), cfg.text(read, ids),
                f"{read} after a write to {written}")


def _all(offline):
    return cpus("possible") | offline


def _only_offline(offline):
    return offline


def _one_of_each(offline):
    return {min(offline), min(cpus("online"))}


@ksft_variants([
    KsftNamedVariant(f"{name}_{label}", name, choose)
    for name in ("xps_cpus", "xps_cpus_list")
    for label, choose in (("all", _all), ("only_offline", _only_offline),
                          ("one_of_each", _one_of_each))
])
def offline_cpus(cfg, name, choose):
    """ Whether a CPU is online makes no difference to its bit """
    ids = choose(some_offline())
    _fill(cfg)
    _takes(cfg, name, cfg.text(name, ids) + "\n", ids)


@ksft_variants([
    KsftNamedVariant(f"{name}_{label}", name, text)
    for name in FILES
    for label, text in (("good", "1\n"), ("none", "0\n"),
                        ("empty_line", "\n"), ("garbage", "zz\n"),
                        ("too_long", TOO_LONG["5000_zeros"]))
])
def no_capability(cfg, name, text):
    """ Without CAP_NET_ADMIN the text is not even looked at """
    _fill(cfg)
    before = cfg.masks()
    handle = os.open(cfg.path(QUEUE, name), os.O_WRONLY)
    defer(os.close, handle)
    with without_net_admin():
        ksft_eq(write_open(handle, text), "EPERM")
    cfg.check_unchanged(before)


@ksft_variants([
    # root of the namespace is not root of the machine
    KsftNamedVariant("xps_cpus", "xps_cpus", "EPERM"),
    KsftNamedVariant("xps_cpus_list", "xps_cpus_list", "EPERM"),
    KsftNamedVariant("xps_rxqs", "xps_rxqs", "OK"),
])
def user_namespace(_cfg, name, result):
    """ rx queues are the device's, CPUs are the machine's """
    with UserNetNS() as userns:
        ip("link add steer0 numtxqueues 4 numrxqueues 4 type dummy", ns=userns)
        path = f"/sys/class/net/steer0/queues/tx-{QUEUE}/{name}"
        script = f"mount -t sysfs none /sys && " \
                 f"echo 1 | dd status=none of={path} conv=notrunc && " \
                 f"cat {path}"
        shell = cmd(f"unshare --mount sh -c '{script}'", shell=True, ns=userns,
                    fail=False)
        if result == "OK":
            ksft_eq((shell.ret, shell.stdout), (0, "1\n"), shell.stderr)
        else:
            ksft_in("Operation not permitted", shell.stderr)


def _single_queue():
    """ A device that has one transmit queue and can't have more """
    ip("link add steer0 numtxqueues 1 numrxqueues 1 type dummy")
    defer(ip, "link del steer0")
    return SteeringDev("steer0")


@ksft_variants([
    KsftNamedVariant("xps_cpus", "xps_cpus"),
    KsftNamedVariant("xps_cpus_list", "xps_cpus_list"),
    KsftNamedVariant("xps_rxqs", "xps_rxqs"),
])
def single_queue_reads_none(_cfg, name):
    """ With one queue there is nothing to steer: no id in any file """
    dev = _single_queue()
    ksft_eq(dev.read(0, name), dev.text(name, []))


@ksft_variants([
    KsftNamedVariant(f"{name}_{label}", name, text)
    for name in FILES
    for label, text in (("one", "1\n"), ("none", "0\n"), ("empty_line", "\n"))
])
def single_queue_refuses(_cfg, name, text):
    """ With one queue there is nothing to steer: writing says so """
    dev = _single_queue()
    ksft_eq(dev.write(0, name, text), "EOPNOTSUPP")


@ksft_variants([
    KsftNamedVariant("xps_cpus", "xps_cpus"),
    KsftNamedVariant("xps_cpus_list", "xps_cpus_list"),
    KsftNamedVariant("xps_rxqs", "xps_rxqs"),
])
def single_queue_no_capability(_cfg, name):
    """ The capability is looked at before the device """
    dev = _single_queue()
    handle = os.open(dev.path(0, name), os.O_WRONLY)
    defer(os.close, handle)
    with without_net_admin():
        ksft_eq(write_open(handle, "1\n"), "EPERM")


def forty_rx_queues(_cfg):
    """ Masks of rx queues are as wide as the device has rx queues """
    nsimdev = NetdevSimDev(queue_count=40)
    defer(nsimdev.remove)
    dev = SteeringDev(nsimdev.nsims[0].ifname)
    ksft_eq(dev.read(QUEUE, "xps_rxqs"), "00,00000000")
    for text, ids in (("80,00000000\n", [39]), ("1\n", [0]),
                      ("0,ff,ffffffff\n", range(40))):
        _takes(dev, "xps_rxqs", text, ids)
    _refuses(dev, "xps_rxqs", "100,00000000\n", "EOVERFLOW")


@ksft_variants([
    KsftNamedVariant("xps_cpus", "xps_cpus"),
    KsftNamedVariant("xps_cpus_list", "xps_cpus_list"),
    KsftNamedVariant("xps_rxqs", "xps_rxqs"),
])
def queue_removed(cfg, name):
    """ A file of a queue that "ethtool -L" took away, still open """
    _fill(cfg)
    handle = os.open(cfg.path(QUEUES - 1, name), os.O_WRONLY)
    defer(os.close, handle)
    before = cfg.masks()
    cfg.channels(2)

    ksft_eq(write_open(handle, "1\n"), "ENODEV", "the file that was open")
    ksft_eq(cfg.write(QUEUES - 1, name, "1\n"), "ENOENT", "to open it now")
    cfg.check_unchanged(before, besides=[
        path for path in before if path.startswith(("tx-2/", "tx-3/"))])

    cfg.channels(QUEUES)
    ksft_eq(write_open(handle, "1\n"), "ENODEV", "it is another queue now")


@ksft_variants([
    KsftNamedVariant("xps_cpus", "xps_cpus"),
    KsftNamedVariant("xps_cpus_list", "xps_cpus_list"),
    KsftNamedVariant("xps_rxqs", "xps_rxqs"),
])
def device_removed(_cfg, name):
    """ A file of a device that is gone, still open """
    nsimdev = NetdevSimDev(queue_count=QUEUES)
    drop = defer(nsimdev.remove)
    dev = SteeringDev(nsimdev.nsims[0].ifname)
    dev.set(QUEUE, [0], name)
    handle = os.open(dev.path(QUEUE, name), os.O_WRONLY)
    defer(os.close, handle)
    drop.exec()
    ksft_eq(write_open(handle, "1\n"), "ENODEV", "the file that was open")
    ksft_eq(dev.write(QUEUE, name, "1\n"), "ENOENT", "to open it now")


def kept_over_channels(cfg):
    """ Fewer queues and all of them again: each has the mask that it had """
    _fill(cfg)
    before = cfg.masks()
    cfg.channels(1)
    cfg.channels(3)
    cfg.channels(QUEUES)
    cfg.check_unchanged(before)


def kept_while_others_change(cfg):
    """ A write in the meantime does not touch masks of queues not in use """
    _fill(cfg)
    before = cfg.masks()
    cfg.channels(2)
    cfg.set(QUEUE, [0])
    cfg.set(QUEUE, [0], "xps_rxqs")
    cfg.channels(QUEUES)
    cfg.check_unchanged(before, besides=[f"tx-{QUEUE}/xps_cpus",
                                         f"tx-{QUEUE}/xps_cpus_list",
                                         f"tx-{QUEUE}/xps_rxqs"])


def kept_over_down_and_up(cfg):
    """ Masks belong to the device, whether it is up or not """
    _fill(cfg)
    before = cfg.masks()
    defer(ip, f"link set {cfg.ifname} down")
    for state in ("up", "down", "up"):
        ip(f"link set {cfg.ifname} {state}")
        cfg.check_unchanged(before)


def main():
    """ All tests on one netdevsim; some make another device """
    with NetdevSimDev(queue_count=QUEUES) as nsimdev:
        cfg = SteeringDev(nsimdev.nsims[0].ifname)
        ksft_run([mask, not_a_mask, cpu_list, not_a_list, list_word, boundary,
                  too_long, longest, forms_agree, offline_cpus,
                  no_capability, user_namespace,
                  single_queue_reads_none, single_queue_refuses,
                  single_queue_no_capability, forty_rx_queues,
                  queue_removed, device_removed, kept_over_channels,
                  kept_while_others_change, kept_over_down_and_up],
                 args=(cfg, ))
    ksft_exit()


if __name__ == "__main__":
    main()
