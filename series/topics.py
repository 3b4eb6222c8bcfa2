# SPDX-License-Identifier: GPL-2.0
"""The mirror and its topics: what this project adds to a kernel, read from disk.

The mirror is every file of ours under a directory that the base kernel has too
(net/, include/, ...), and the *.diff at the project's root. By its name a file
there is either new, copied as it is, or FILE.TOPIC.diff, an edit of FILE.

A topic is one commit: series/NN-TOPIC.md, in order of NN.

    # subject
                        changelog, plain text, ends with Signed-off-by
    ---                 below it, for this tool:
    new: PATH           a new file that comes with this topic
    unifdef: -UNAME     a strip topic: these symbols are taken out ...
    over: PATH          ... of these files
    allow: PATH [TEXT]  a line that may go on naming them

A patch in series/fixes/ is a topic as well, before all others.
"""
import dataclasses
import os
import re
import stat

from run import ROOT, Stop

KEYS = ("new", "unifdef", "over", "allow")
LITTER = re.compile(r"(~|\.sw[op]|\.orig|\.rej|\.pyc)$|(^|/)(__pycache__|\.#[^/]*)(/|$)")
SIGNED = re.compile(r"^Signed-off-by: (.+?) <(.+)>$", re.M)


@dataclasses.dataclass
class Topic:
    name: str
    path: str                   # of its file in the project
    subject: str
    body: str
    author: tuple
    keys: dict
    patch: bytes = None         # a fix: the patch itself

    @property
    def message(self):
        """The commit message: the Topic trailer tells refresh where a commit belongs."""
        return f"{self.subject}\n\n{self.body}\nTopic: {self.name}\n"


def tidy(lines):
    """Text as git keeps it in a commit message."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")


def parse(path, data):
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise Stop(f"{path}: isn't UTF-8")
    name = re.match(r"series/\d\d-(.*)\.md$", path)[1]
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise Stop(f"{path}: a topic's name has small letters, digits and dashes only")
    if not lines or not lines[0].startswith("# ") or (len(lines) > 1 and lines[1].strip()):
        raise Stop(f"{path}: it has to begin with `# subject` and an empty line")
    cut = lines.index("---") if "---" in lines else len(lines)
    body = tidy(lines[1:cut])
    signed = SIGNED.search(body.split("\n\n")[-1])
    if not signed:
        raise Stop(f"{path}: its changelog has to end with a line `Signed-off-by: NAME <EMAIL>`")
    keys = {key: [] for key in KEYS}
    for line in lines[cut + 1:]:
        key, colon, value = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not colon or key not in keys:
            raise Stop(f"{path}: `{line}`: below the --- there are only "
                       f"{', '.join(k + ':' for k in KEYS)} and # comments")
        keys[key].append(value.strip())
    if bool(keys["unifdef"]) != bool(keys["over"]):
        raise Stop(f"{path}: a strip needs both `unifdef:` and `over:`")
    return Topic(name, path, lines[0][2:].strip(), body, signed.groups(), keys)


def render(topic, old):
    """The topic's file with its subject, changelog and new: lines; the rest stays as it was."""
    lines = old.decode().splitlines()
    cut = lines.index("---") if "---" in lines else len(lines)
    below, missing = [], list(topic.keys["new"])
    last = 0                    # where a further new: line goes
    for line in lines[cut + 1:]:
        if line.startswith("new:"):
            path = line[4:].strip()
            if path not in missing:
                continue
            missing.remove(path)
            last = len(below) + 1
        below.append(line)
    below[last:last] = [f"new: {path}" for path in missing]
    head = [f"# {topic.subject}", "", *topic.body.split("\n")]
    return ("\n".join(head + (["---"] + below if any(below) else [])) + "\n").encode()


class Mirror:
    """The project's kernel content, in memory: files is {path: (mode, bytes)}."""

    def __init__(self, files, kernel_dirs):
        self.files, self.kernel_dirs = files, kernel_dirs

    @classmethod
    def read(cls, kernel_dirs):
        paths = [f"series/{n}" for n in os.listdir(ROOT / "series") if n.endswith((".md", ".removed"))]
        paths += [n for n in os.listdir(ROOT) if n.endswith(".diff")]
        for top in ["series/fixes", *kernel_dirs]:
            for folder, dirs, names in os.walk(ROOT / top):
                dirs.sort()
                paths += [os.path.relpath(os.path.join(folder, n), ROOT) for n in
                          names + [d for d in dirs if os.path.islink(os.path.join(folder, d))]]
        return cls({p: load(p) for p in sorted(paths) if not LITTER.search(p)}, kernel_dirs)

    def write(self, old):
        """Bring the disk from the old content to this; what didn't change isn't touched."""
        said = []
        for path in sorted(old.files.keys() | self.files.keys()):
            if path not in self.files:
                (ROOT / path).unlink()
                said.append(f"removed {path}")
            elif old.files.get(path) != self.files[path]:
                store(path, *self.files[path])
                said.append(f"wrote   {path}")
        return said

    def read_topics(self, fix):
        """Topics in order. What the mirror holds and what the topics name have to agree."""
        topics = [fix(path, data) for path, (_, data) in self.files.items()
                  if re.match(r"series/fixes/.*\.patch$", path)]
        seen = {}
        for path, (_, data) in self.files.items():
            number = re.match(r"series/(\d\d)-.+\.md$", path)
            if not number or number[1] == "00":
                continue
            if number[1] in seen:
                raise Stop(f"{path}: {seen[number[1]]} has the number {number[1]} too; the order has to be clear")
            seen[number[1]] = path
            topics.append(parse(path, data))
        names = [t.name for t in topics]
        for name in names:
            if names.count(name) > 1:
                raise Stop(f"two topics are named {name}; rename one of the files in series/")
        self.check_owners(topics)
        return topics

    def kernel_files(self):
        """Paths of the mirror proper."""
        return [p for p in self.files if "/" not in p or p.split("/", 1)[0] in self.kernel_dirs]

    def check_owners(self, topics):
        names = {t.name for t in topics}
        owner = {}
        for topic in topics:
            for path in topic.keys["new"]:
                if path in owner:
                    raise Stop(f"{topic.path}: {owner[path]} brings {path} already; one topic brings a file, "
                               f"a later one edits it with {path}.{topic.name}.diff")
                if path not in self.files or path.endswith(".diff"):
                    raise Stop(f"{topic.path}: `new: {path}`, but there is no such file: add it, "
                               "or take the line out")
                owner[path] = topic.path
        for path in self.kernel_files():
            if path.endswith(".diff"):
                if edited(path)[1] not in names:
                    raise Stop(f"{path}: there is no topic `{edited(path)[1]}`: the name has to be "
                               "FILE.TOPIC.diff with a TOPIC of series/NN-TOPIC.md")
            elif path not in owner:
                raise Stop(f"{path}: no topic brings it: add `new: {path}` below the --- in one of "
                           "series/NN-TOPIC.md, or remove the file")

    def edits(self, topic):
        """{FILE: path of its diff} for a topic."""
        found = (p for p in self.kernel_files() if p.endswith(".diff"))
        return {edited(p)[0]: p for p in found if edited(p)[1] == topic.name}


def edited(path):
    """FILE and TOPIC of FILE.TOPIC.diff."""
    file, _, topic = path[:-len(".diff")].rpartition(".")
    return file, topic


def load(path):
    where = ROOT / path
    if where.is_symlink():
        return "120000", os.readlink(where).encode()
    return "100755" if where.stat().st_mode & stat.S_IXUSR else "100644", where.read_bytes()


def store(path, mode, data):
    where = ROOT / path
    where.parent.mkdir(parents=True, exist_ok=True)
    if where.is_symlink() or mode == "120000":
        where.unlink(missing_ok=True)
    if mode == "120000":
        where.symlink_to(data.decode())
        return
    where.write_bytes(data)
    where.chmod(0o755 if mode == "100755" else 0o644)
