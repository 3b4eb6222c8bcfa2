# SPDX-License-Identifier: GPL-2.0
"""The base: the kernel that the topics are committed on.

series/base pins a Debian source package. It is fetched once for a user and
kept outside the checkout, under $XDG_CACHE_HOME/packet-steering:

    linux-source-7.3_VERSION_all.deb    as the archive has it
    linux-VERSION/                      unpacked, never written to
    linux-VERSION.git                   the same as git objects, in one pack

Each appears under its name when it is complete, so an interrupted run heals.
KSRC=DIR takes a kernel tree at hand instead: the HEAD of a git work tree, whose
objects are borrowed, or a plain tree, imported into build/ksrc.git.
"""
import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from run import BUILD, ROOT, Repo, Stop, locked, run, say, text

KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclasses.dataclass
class Base:
    name: str           # "Linux 7.3.4 (Debian 7.3.4-1~bpo13+1)"
    source: pathlib.Path
    objects: pathlib.Path
    tree: str
    date: int           # seconds; every commit of the composition bears it
    pinned: bool        # the very version that series/base names


def find():
    ksrc = os.environ.get("KSRC")
    return at_hand(pathlib.Path(ksrc).expanduser().resolve()) if ksrc else package()


# ---- Debian's source package ----

def pin():
    lines = (ROOT / "series/base").read_text().splitlines()
    keys = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    missing = {"package", "suite", "version", "sha256"} - keys.keys()
    if missing:
        raise Stop(f"series/base: no {', '.join(sorted(missing))}")
    return keys


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home).absolute() / "packet-steering"


def package():
    want = pin()
    version = cached(want)
    if not version:
        with locked(cache() / "lock", "fetching the base"):
            version = cached(want) or import_package(want, *(downloaded(want) or download(want)))
    if version != want["version"]:
        say(f"base: {want['version']} is pinned and gone from the archive; using the newer {version}")
    source = cache() / f"linux-{version}"
    repo = Repo(cache() / f"linux-{version}.git")
    return Base(f"Linux {version.split('-')[0]} (Debian {version})", source, repo.gitdir / "objects",
                repo("rev-parse", "refs/tree"), stamp(source), version == want["version"])


def stamp(source):
    return int((source / "Makefile").stat().st_mtime)


def cached(want):
    """The pinned version if the cache has it, else a newer one that was taken in its place."""
    series = want["package"].rsplit("-", 1)[1]
    have = [p.name[len("linux-"):-len(".git")] for p in cache().glob(f"linux-{series}.*.git")]
    have = [version for version in have if (cache() / f"linux-{version}").is_dir()]
    if want["version"] in have:
        return want["version"]
    return newest([version for version in have if newer(version, want["version"])])


def downloaded(want):
    """The pinned package, if an earlier run had got that far."""
    deb = cache() / f"{want['package']}_{want['version']}_all.deb"
    return (want["version"], deb) if deb.exists() and sha256(deb) == want["sha256"] else None


def newer(a, b):
    return run(["dpkg", "--compare-versions", a, "gt", b], ok=(0, 1)).returncode == 0


def newest(versions):
    return max(versions, default=None, key=functools.cmp_to_key(lambda a, b: 1 if newer(a, b) else -1))


def download(want):
    """Fetch the package with an apt of our own; nothing of the system's apt is written."""
    if not KEYRING.exists():
        raise Stop(f"{KEYRING} is not there: install debian-archive-keyring, or use KSRC=DIR")
    mirror = debian_mirror()
    apt = cache() / "apt"
    for sub in ("lists/partial", "archives/partial"):
        (apt / sub).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {want['suite']} main\n")
    # The system's hooks clean up or index the system's own cache: not ours to run.
    (apt / "conf").write_text(f"""\
Dir::Etc::sourcelist "{apt}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{apt}";
Dir::State::lists "{apt}/lists";
Dir::State::status "/dev/null";
Dir::Cache "{apt}";
APT::Sandbox::User "";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
""")
    name = want["package"]
    say(f"base: asking the archive for {name} ({want['suite']})")
    try:
        run(["apt-get", "-c", apt / "conf", "-qq", "-o", "APT::Update::Error-Mode=any", "update"])
        listed = text(run(["apt-cache", "-c", apt / "conf", "madison", name]).stdout)
        versions = [line.split("|")[1].strip() for line in listed.splitlines() if line.count("|") == 2]
        version = want["version"] if want["version"] in versions else newest(versions)
        if not version:
            raise Stop(f"{want['suite']} has no {name} any more: name a package of today in "
                       "series/base, or use KSRC=DIR")
        if newer(want["version"], version):
            raise Stop(f"the archive's newest {name} is {version}, older than the pinned {want['version']}: "
                       "the mirror is behind; try later, or use KSRC=DIR")
        say(f"base: fetching {name} {version} (about 170 MB)")
        progress = "-q" if sys.stderr.isatty() else "-qq"
        if subprocess.run(["apt-get", "-c", str(apt / "conf"), progress, "download", f"{name}={version}"],
                          cwd=cache(), stdout=sys.stderr).returncode:
            raise Stop("the download failed")
    except Stop as why:
        said = [line for line in str(why).splitlines() if not line.startswith("apt-")]
        raise Stop("\n    ".join(["no base kernel: it isn't in the cache and could not be fetched. Connect to the "
                                  "network, or name a kernel tree at hand with KSRC=DIR.", *said]))
    deb = next(cache().glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
    if version == want["version"] and sha256(deb) != want["sha256"]:
        deb.rename(deb.with_suffix(".bad"))
        raise Stop(f"{deb.name}: its sha256 isn't the one in series/base; kept as {deb.stem}.bad. "
                   "Don't build from it: find out which of the two is wrong.")
    return version, deb


def debian_mirror():
    """The mirror that the machine's apt uses for Debian itself."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    # Before the machine's first update, apt doesn't know origins; then the name has to do.
    for more, name in (["Origin: Debian"], ""), (["--no-release-info"], "debian"):
        out = text(run([*targets, *more], ok=None).stdout)
        found = [uri for uri in out.split() if name in uri and "security" not in uri]
        if found:
            return found[0]
    raise Stop("apt's configuration names no Debian mirror: use KSRC=DIR with a kernel tree at hand")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def import_package(want, version, deb):
    source = cache() / f"linux-{version}"
    temp = cache() / "unpack.tmp"
    shutil.rmtree(temp, ignore_errors=True)
    if not source.is_dir():
        say(f"base: unpacking {deb.name} (20 s, 1.8 GB)")
        run(["dpkg-deb", "-x", deb, temp])
        tar = next((temp / "usr/src").glob(f"{want['package']}.tar.*"))
        (temp / "tree").mkdir()
        run(["tar", "-xf", tar, "--strip-components=1", "--no-same-owner", "-C", temp / "tree"])
        (temp / "tree").rename(source)
        shutil.rmtree(temp)
    repo = Repo(cache() / "import.tmp", worktree=source)
    shutil.rmtree(repo.gitdir, ignore_errors=True)
    repo("update-ref", "refs/tree", import_tree(repo))
    (repo.gitdir / "index").unlink()
    repo("repack", "-q", "-d")                  # the directories; the files came in one pack
    shutil.rmtree(cache() / f"linux-{version}.git", ignore_errors=True)
    repo.gitdir.rename(cache() / f"linux-{version}.git")
    return version


# ---- a tree at hand ----

def at_hand(source):
    if not (source / "net/core/dev.c").is_file() or not (source / "Makefile").is_file():
        raise Stop("KSRC is no kernel tree: net/core/dev.c isn't there. Name the top of one.")
    release = kernel_release(source)
    user = Repo(source / ".git", worktree=source)
    if (source / ".git").exists() and user.find("HEAD"):
        if user("--no-optional-locks", "status", "--porcelain", "-uno"):
            say("base: KSRC has uncommitted changes: they are not taken, its HEAD is")
        commit, date, tree = user("log", "-1", "--format=%h %ct %T").split()
        objects = pathlib.Path(user("rev-parse", "--path-format=absolute", "--git-path", "objects"))
        return Base(f"Linux {release} (KSRC at {commit})", source, objects, tree, int(date), False)
    if (source / ".config").exists():
        raise Stop("KSRC was built in place, so its objects would be taken for source: run `make mrproper` "
                   "there, or name a clean tree or a git work tree")
    repo = Repo(BUILD / "ksrc.git", worktree=source)
    tree = import_tree(repo)
    return Base(f"Linux {release} (KSRC)", source, repo.gitdir / "objects", tree, stamp(source), False)


def kernel_release(source):
    parts = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *=[ \t]*(\S*)",
                            (source / "Makefile").read_text(), re.M))
    number = ".".join(parts[k] for k in ("VERSION", "PATCHLEVEL", "SUBLEVEL") if parts.get(k))
    return number + parts.get("EXTRAVERSION", "") or "of unknown version"


def import_tree(repo):
    """Read a whole work tree into a repository. What git takes for big goes into one pack."""
    if not repo.gitdir.is_dir():
        say("base: importing it into git (30 s)")
        run(["git", "init", "-q", "--bare", "--template=", repo.gitdir])
    (repo.gitdir / "index.lock").unlink(missing_ok=True)        # of a run cut short
    repo("-c", "core.compression=1", "-c", "core.bigFileThreshold=1", "add", "-A", "-f", ".")
    return repo("write-tree")
