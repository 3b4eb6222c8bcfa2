# SPDX-License-Identifier: GPL-2.0
"""Running other programs, git above all, and the two ways this tool speaks.

say() is progress and goes to stderr; Stop is the one message of a run that
can't go on, and says what to do. Git sees none of the user's settings and none
of the variables of a hook or make that calls us, so that one composition has one
set of commit ids everywhere.
"""
import contextlib
import fcntl
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
LINUX = BUILD / "linux"
LICENSE = "# SPDX-License-Identifier: GPL-2.0\n"      # heads every diff and record that is written

SETTINGS = {
    "safe.directory": "*",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.hooksPath": os.devnull,
    "core.quotePath": "false",
    "gc.auto": "0",
    "checkout.workers": "0",
    "advice.detachedHead": "false",
}
DEBIAN = {"apt-get": "apt", "dpkg-deb": "dpkg"}        # packages that aren't named as their program is


class Stop(Exception):
    """What is wrong and what to do about it."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "MAKE", "MFLAGS"))}
    env |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
    return env | more


def run(argv, *, stdin=None, ok=(0,), cwd=None, env=None):
    """Run a program to its end; a status that isn't in ok stops, with what it said."""
    argv = [str(a) for a in argv]
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, cwd=cwd,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              env=environment() if env is None else env)
    except FileNotFoundError:
        name = argv[0]
        raise Stop(f"{name} is not there: install it (Debian: apt-get install {DEBIAN.get(name, name)})")
    if ok is not None and done.returncode not in ok:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise Stop(f"{' '.join(argv[-8:])[:200]}: failed ({done.returncode})\n{said}")
    return done


def text(data):
    return data.decode("utf-8", "surrogateescape")


class Repo:
    """A git repository; calling it runs one git command there."""

    def __init__(self, gitdir, worktree=None, index=None):
        self.gitdir, self.worktree, self.index = pathlib.Path(gitdir), worktree, index

    def run(self, *args, stdin=None, ok=(0,), env=None):
        if isinstance(stdin, str):
            stdin = stdin.encode("utf-8", "surrogateescape")
        where = {"GIT_DIR": str(self.gitdir)}
        if self.worktree:
            where["GIT_WORK_TREE"] = str(self.worktree)
        if self.index:
            where["GIT_INDEX_FILE"] = str(self.index)
        options = [w for key, value in SETTINGS.items() for w in ("-c", f"{key}={value}")]
        return run(["git", *options, *args], stdin=stdin, ok=ok, cwd=self.worktree or self.gitdir,
                   env=environment(**where, **(env or {})))

    def __call__(self, *args, **kw):
        return text(self.run(*args, **kw).stdout).rstrip("\n")

    def find(self, name):
        """The object a name stands for, or None."""
        return self("rev-parse", "--quiet", "--verify", name, ok=(0, 1)) or None

    def blob(self, data):
        return self("hash-object", "-w", "--stdin", stdin=data)

    def files(self, tree, *paths):
        """{path: (mode, blob)} of a tree, or of these paths in it."""
        out = self("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
        entries = (e.split("\t", 1) for e in out.split("\0") if e)
        return {path: (head.split()[0], head.split()[2]) for head, path in entries}

    def changed(self, old, new):
        """[(status letter, path)] between two trees."""
        out = self("diff-tree", "-r", "-z", "--no-renames", "--name-status", old, new).split("\0")
        return list(zip(out[0::2], out[1::2]))

    def commits(self, base, steps, date):
        """Commit the steps [(message, (name, email), {path: (mode, blob) or None})] on a tree.

        Returns the commits' ids, the base's first; they follow from the content alone.
        """
        stream = ["reset refs/steering/made"]
        for mark, (message, (name, email), changes) in enumerate(steps, 1):
            size = len(message.encode("utf-8", "surrogateescape"))
            stream += ["commit refs/steering/made", f"mark :{mark}",
                       f"committer {name} <{email}> {date} +0000", f"data {size}", message]
            if mark == 1:
                stream.append(f'M 040000 {base} ""')
            stream += [f"M {' '.join(entry)} {path}" if entry else f"D {path}"
                       for path, entry in changes.items()]
        stream += [f"get-mark :{mark}" for mark in range(1, len(steps) + 1)]
        made = self("fast-import", "--quiet", "--force", stdin="\n".join(stream) + "\n").split()
        self("update-ref", "-d", "refs/steering/made")
        return made


@contextlib.contextmanager
def locked(path, what):
    """Hold a lock file, so that two runs don't write the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that is {what}")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def at_work():
    """Hold build/linux and what is made of it."""
    return locked(BUILD / "series.lock", "at work in build/")
