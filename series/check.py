# SPDX-License-Identifier: GPL-2.0
"""series-check: every commit compiles, with and without SMP, and gives no new message.

The commits are visited in build/check-tree, the objects stay in build/check-smp
and build/check-up. Compilers speak only when they compile, so a message counts
when its object is made; the base's own, made first and from nothing, are what
an edited file may go on saying. What had messages in a run that failed or was
cut short is made anew. A tree that passed isn't visited again.
"""
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import time

import export
from compose import compose
from run import BUILD, ROOT, Repo, Stop, at_work, environment, run, say, text

TREE = BUILD / "check-tree"
TARGETS = ["net/core/", "net/sched/", "net/packet/", "drivers/net/virtio_net.o",
           "drivers/net/ethernet/intel/ixgbe/"]
NOT_KERNEL = ("tools/", "scripts/", "samples/", "Documentation/", "usr/")
CONFIGS = {"smp": [], "up": ["CONFIG_SMP=n"]}
FRAGMENTS = ["base", "x86", "series"]           # in lab/configs
# FILE:LINE:COLUMN: warning: ..., Warning: FILE:LINE ... and OBJECT: warning: ...
MESSAGE = re.compile(r"(?:(?:Warning|Error|WARNING|ERROR): )?([\w./+-]+)(?::(\d+)(?::\d+)?:?|:(?= warning: )) "
                     r"(?!note: )(.*)$")


def series_check(link):
    with at_work():
        base, repo, stack = compose()
    tree = Repo(repo.gitdir, worktree=TREE, index=TREE / ".index")
    TREE.mkdir(exist_ok=True)
    flavours = [Flavour(name, base) for name in CONFIGS]
    everything = targets(repo, base, stack[-1][1])
    for flavour in flavours:
        if flavour.state["base"] != base.tree or set(everything) - set(flavour.state["targets"]):
            switch(tree, base.tree)
            have = repo.files(base.tree, *(t[:-1] + "c" for t in everything if t.endswith(".o")))
            there = [t for t in everything if t.endswith("/") or t[:-1] + "c" in have]
            flavour.learn(base, everything, there)
    for number, (topic, commit) in enumerate(stack[1:], 1):
        touched = {path for _, path in repo.changed(base.tree, commit)}
        ours = {path for status, path in repo.changed(base.tree, commit) if status == "A"}
        last = link and number == len(stack) - 1
        for flavour in flavours:
            where = f"{flavour.name} {number}/{len(stack) - 1} {topic.name}"
            for goals in [targets(repo, base, commit)] + [["vmlinux"]] * last:
                mark = f"{repo('rev-parse', f'{commit}^{{tree}}')} {' '.join(goals)}"
                if mark not in flavour.state["good"]:
                    switch(tree, commit)
                    flavour.judge(where, goals, ours, touched)
                    flavour.remember(mark)
    with at_work():
        export.checkpatch()
    say(f"series-check: {len(stack) - 1} commits compile, SMP and UP, with no new message" +
        ("" if link else "; not linked"))


def targets(repo, base, commit):
    """What to compile at a commit: the places that matter, and what else was touched so far."""
    covered = tuple(t for t in TARGETS if t.endswith("/")) + NOT_KERNEL
    there = (path for status, path in repo.changed(base.tree, commit) if status != "D")
    objects = (path[:-1] + "o" for path in there if path.endswith(".c"))
    return TARGETS + sorted(o for o in objects if o not in TARGETS and not o.startswith(covered))


def switch(tree, commit):
    tree("update-index", "-q", "--refresh", ok=(0, 1))      # else files that were only touched are written anew
    tree("read-tree", "--reset", "-u", commit)


def options(fragment):
    lines = (ROOT / "lab/configs" / fragment).read_text().splitlines()
    return [line for line in lines if line.startswith("CONFIG_")]


class Flavour:
    """One configuration, its objects, and what is known of them."""

    def __init__(self, name, base):
        self.name, self.out = name, BUILD / f"check-{name}"
        lines = [line for fragment in FRAGMENTS for line in options(fragment)] + CONFIGS[name]
        self.config = {line.split("=")[0]: line for line in lines}      # the later one counts
        made_by = "".join(text(run([tool, "--version"]).stdout) for tool in ("gcc", "sparse"))
        key = hashlib.sha1(("\n".join(self.config.values()) + made_by).encode()).hexdigest()
        try:
            self.state = json.loads((self.out / "state").read_text())
        except (OSError, ValueError):
            self.state = {}
        if self.state.get("key") != key:
            self.state = {"key": key, "base": None, "targets": [], "messages": [], "good": []}

    def learn(self, base, everything, goals):
        """Compile the base from nothing, to know what it says by itself."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        status, said = self.make(f"{self.name} base", goals)
        if status:
            raise Stop(f"{base.name} itself doesn't compile ({self.name}); see {self.log().relative_to(ROOT)}")
        self.state |= {"base": base.tree, "targets": everything, "messages": sorted(said), "good": []}
        self.remember(None)

    def remember(self, mark):
        self.state["good"] += [mark] * bool(mark)
        (self.out / "state").write_text(json.dumps(self.state))
        self.log().write_text("")

    def judge(self, where, goals, ours, touched):
        def new(said):
            known = set(map(tuple, self.state["messages"]))
            new = sorted((path, what) for path, what in said if path in ours or (path, what) not in known)
            # For the rest of the kernel, the base wasn't asked.
            return [(path, what) for path, what in new if goals != ["vmlinux"] or path in touched]

        if self.log().exists():                 # of a run that didn't pass: have it said again
            for path, _ in new(messages(self.log().read_text(errors="replace"))):
                if (TREE / path).exists():
                    os.utime(TREE / path)
        self.log().write_text("")
        status, said = self.make(where, goals)
        if status or new(said):
            what = "\n".join(f"    {path}: {what}" for path, what in new(said)) or "    make failed"
            raise Stop(f"{where}:\n{what}\nAll of it is in {self.log().relative_to(ROOT)}. "
                       "Put it right in the topic's files.")

    def log(self):
        return self.out / "check.log"

    def make(self, where, goals):
        """(status, {(path, message)})"""
        start = then = time.monotonic()
        command = ["make", "-C", str(TREE), f"O={self.out}", "ARCH=x86_64", "LOCALVERSION=",
                   f"CHECK={sparse()}"]
        wanted = self.out / "wanted"
        wanted.write_text("\n".join(self.config.values()) + "\n")
        run([*command, f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"])
        self.check_config()
        count = 0
        with open(self.log(), "a") as log:
            command += ["W=1", "C=1", "-k", f"-j{os.cpu_count()}", "-Otarget", *goals]
            make = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, text=True,
                                    errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for line in make.stdout:
                log.write(line)
                log.flush()
                count += line.startswith("  CC ")
                if time.monotonic() - then > 20:
                    then = time.monotonic()
                    say(f"  {where}: {count} objects, {then - start:.0f} s")
        status = make.wait()
        say(f"{where}: {count} objects, {time.monotonic() - start:.0f} s" + (", FAILED" if status else ""))
        return status, messages(self.log().read_text(errors="replace"))

    def check_config(self):
        """An option that is dropped in silence would take its objects along."""
        have = set((self.out / ".config").read_text().splitlines())
        lost = [line for line in options("x86") if line not in have]
        if lost and self.name == "smp":
            raise Stop(f"this kernel has no, or hides behind another option: {' '.join(lost)}; "
                       "change lab/configs/x86")


@functools.cache
def sparse():
    """The kernel leaves out a sparse without __typeof_unqual__, like Debian 12's; typeof does instead."""
    for command in ("sparse", "sparse -D__typeof_unqual__=__typeof__"):
        if run([TREE / "scripts/checker-valid.sh", *command.split()]).stdout.strip() == b"1":
            return command
    raise Stop("this sparse is too old for this kernel; install a newer one")


def messages(output):
    """{(path, what)}, without line numbers, which move."""
    found = (MESSAGE.match(line.replace(f"{TREE}/", "")) for line in output.splitlines())
    return {(m[1].removeprefix("./"), re.sub(r":\d+(:\d+)?\b", "", m[3])) for m in found if m and not excused(*m.groups())}


def excused(path, line, what):
    """Sparse 0.6.4 can't compute __builtin_strlen(), with which MODULE_*() asserts a length."""
    if what != "error: bad constant expression" or not (TREE / path).is_file():
        return False
    return (TREE / path).read_text(errors="replace").split("\n")[int(line) - 1].startswith("MODULE_")
