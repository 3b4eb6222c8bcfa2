# SPDX-License-Identifier: GPL-2.0
"""compose: the base and one commit a topic, as a git work tree in build/linux.

The commits are made with no work tree, from an index of just the files that
the topics touch; then git brings build/linux there, which writes only files
whose content differs, so that make rebuilds little. refs/steering/composed
remembers the last composition: what build/linux has beyond it is somebody's
work.
"""
import pathlib
import re
import tempfile

import base as bases
import strip
from run import LICENSE, LINUX, Repo, Stop, run, say, text
from topics import SIGNED, Mirror, Topic, tidy

COMPOSED = "refs/steering/composed"
BRANCH = "refs/heads/steering"
SOMEBODY = ("The base", "base@invalid")


class Index(Repo):
    """The files that the topics touch, as they are in a tree, in an index of their own."""

    def __init__(self, repo, tree, paths):
        self.folder = tempfile.TemporaryDirectory()      # goes with the object
        super().__init__(repo.gitdir, repo.worktree, f"{self.folder.name}/index")
        self("read-tree", "--empty")
        self.known = None
        self.put(self.files(tree, *paths) if paths else {})

    def entries(self):
        """{path: (mode, blob)}"""
        if self.known is None:
            lines = (e.split("\t", 1) for e in self("ls-files", "-s", "-z").split("\0") if e)
            self.known = {path: tuple(head.split()[:2]) for head, path in lines}
        return dict(self.known)

    def put(self, entries):
        """Set files; None takes one out."""
        if entries:
            lines = (f"{mode} {blob}\t{path}\0" for path, (mode, blob) in
                     ((path, entry or ("0", "0" * 40)) for path, entry in entries.items()))
            self("update-index", "-z", "--index-info", stdin="".join(lines))
            self.known = None

    def read(self, entry):
        return self.run("cat-file", "blob", entry[1]).stdout

    def apply(self, diffs, topic):
        """Apply {path of a diff: its bytes}, exactly; a line offset is allowed, and said."""
        whole = b"".join(diffs.values())
        if not whole:
            return
        command = ["apply", "--cached", "-v", "--whitespace=nowarn"]
        done = self.run(*command, "-", stdin=whole, ok=None)
        self.known = None
        if done.returncode:
            for path, diff in diffs.items():
                alone = self.run(*command, "--check", "-", stdin=diff, ok=None)
                if alone.returncode:
                    raise Stop(misfit(path, text(diff), text(alone.stderr)))
            raise Stop(f"the edits of {topic} don't apply together:\n{text(done.stderr)}")
        file = ""
        for line in text(done.stderr).splitlines():
            file = line[len("Checking patch "):-3] if line.startswith("Checking patch ") else file
            moved = re.match(r"Hunk #(\d+) succeeded at \d+ \(offset (-?\d+) lines?\)", line)
            if moved:
                say(f"offset {moved[2]} lines in {file}, hunk {moved[1]} ({topic})")


def misfit(path, diff, said):
    """A diff that doesn't apply, and the hunk at fault."""
    line = re.search(r"patch failed: .*:(\d+)$", said, re.M)
    hunk = line and re.search(rf"^@@ -{line[1]}[, ].*$", diff, re.M)
    where = f"the hunk\n    {hunk[0]}\ndoesn't" if hunk else "it doesn't"
    errors = "\n".join(f"    {e}" for e in said.splitlines() if e.startswith("error:"))
    return (f"{path}: {where} apply exactly:\n{errors}\nBring its context up to date with the base and the "
            "topics before it (the line numbers may differ, the lines may not).")


def repository(base):
    """build/linux/.git, with the base's objects borrowed."""
    repo = Repo(LINUX / ".git", worktree=LINUX)
    if not (repo.gitdir / "HEAD").exists():
        LINUX.mkdir(parents=True, exist_ok=True)
        run(["git", "init", "-q", "--template=", LINUX])
        repo("symbolic-ref", "HEAD", BRANCH)
        repo("config", "core.commentChar", ";")     # changelogs show shell prompts
    alternates = repo.gitdir / "objects/info/alternates"
    alternates.parent.mkdir(exist_ok=True)
    lines = alternates.read_text().splitlines() if alternates.exists() else []
    others = [line for line in lines if line != str(base.objects) and pathlib.Path(line).is_dir()]
    wanted = [str(base.objects), *others]
    if wanted != lines:
        alternates.write_text("\n".join(wanted) + "\n")
    return repo


def read_mirror(base, repo):
    dirs = repo("ls-tree", "-d", "--name-only", base.tree).split("\n")
    return Mirror.read(dirs)


def read_fix(repo):
    """A reader of patches in mail form, as git format-patch writes them."""
    def read(path, data):
        with tempfile.TemporaryDirectory() as temp:
            info = repo("mailinfo", f"{temp}/msg", f"{temp}/patch", stdin=data)
            body = tidy(pathlib.Path(temp, "msg").read_text().splitlines())
        head = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
        if not {"Author", "Email", "Subject"} <= head.keys() or not SIGNED.search(body):
            raise Stop(f"{path}: no patch in mail form with From, Subject and Signed-off-by: make "
                       "it with git format-patch")
        name = path[len("series/"):-len(".patch")]
        return Topic(name, path, head["Subject"], body, (head["Author"], head["Email"]),
                     {"new": [], "unifdef": [], "over": [], "allow": []}, data)
    return read


def changes(before, after):
    """{path: entry, None if it went} of what differs between two sets of entries."""
    paths = sorted(before.keys() | after.keys())
    return {path: after.get(path) for path in paths if before.get(path) != after.get(path)}


def touched(topics, mirror):
    """Every path that a topic may change."""
    paths = set()
    for topic in topics:
        paths.update(topic.keys["new"], topic.keys["over"], mirror.edits(topic))
        patched = re.findall(rb"^(?:---|\+\+\+) [ab]/([^\t\n]+)", topic.patch or b"", re.M)
        paths.update(map(text, patched))
    return sorted(paths)


def apply_topic(index, topic, mirror):
    """Do one topic to the index. Returns the record of what a strip removed."""
    if topic.patch:
        index.apply({topic.path: topic.patch}, topic.name)
        return []
    before, new = index.entries(), {}
    for path in topic.keys["new"]:
        if path in before:
            raise Stop(f"{path}: the base has this file (or a fix brings it), and copying ours over it would "
                       f"silently revert theirs. Make it an edit, {path}.{topic.name}.diff, or choose another "
                       "name.")
        mode, data = mirror.files[path]
        new[path] = mode, index.blob(data)
    index.put(new)
    edits = mirror.edits(topic)
    for file, path in edits.items():
        check_diff(path, file, mirror.files[path][1])
    index.apply({path: mirror.files[path][1] for path in edits.values()}, topic.name)
    return strip_files(index, topic, edits, before) if topic.keys["unifdef"] else []


def strip_files(index, topic, edits, before):
    guarded = index.entries()
    for file, path in edits.items():
        if file in before and file in guarded:
            strip.check_guard(path, index.read(before[file]), index.read(guarded[file]))
    removed, stripped = [], {}
    for path in topic.keys["over"]:
        if path not in guarded:
            raise Stop(f"{topic.path}: `over: {path}`: the base has no such file; take the line "
                       "out, or find its new name")
        stays, went = strip.unifdef(topic.keys["unifdef"], path, index.read(guarded[path]))
        stripped[path] = guarded[path][0], index.blob(stays)
        removed += went
    index.put(stripped)
    return removed


def check_diff(path, file, diff):
    before, after = (re.findall(rb"^" + side + rb" (?:[ab]/)?([^\t\n]+)", diff, re.M)
                     for side in (rb"---", rb"\+\+\+"))
    if before == [b"/dev/null"]:
        raise Stop(f"{path}: makes a new file; put {file} itself in the mirror, with a `new:` "
                   "line in the topic")
    modes = re.search(rb"^(old mode|deleted file mode)", diff, re.M)
    if not modes and (before != [file.encode()] or after != [file.encode()]):
        raise Stop(f"{path}: has to be one unified diff, with `--- a/{file}` and `+++ b/{file}`")


def make_commits(base, mirror, repo, record=False):
    """[(topic, commit)], the base first as (None, commit). Touches no work tree.

    With record, what the strips removed is put into the mirror instead of held
    against it.
    """
    topics = mirror.read_topics(read_fix(repo))
    index = Index(repo, base.tree, touched(topics, mirror))
    steps, removed = [(base.name + "\n", SOMEBODY, {})], {}
    entries = index.entries()
    for topic in topics:
        removed[topic.name] = apply_topic(index, topic, mirror)
        before, entries = entries, index.entries()
        steps.append((topic.message, topic.author, changes(before, entries)))
    stack = list(zip([None] + topics, repo.commits(base.tree, steps, base.date)))
    for topic, commit in stack[1:]:
        if topic.keys["unifdef"]:
            strip.leftovers(repo, commit, topic)
            check_record(topic, removed[topic.name], mirror, base, record)
    return stack


def check_record(topic, removed, mirror, base, anew):
    path = f"series/{topic.name}.removed"
    if anew:
        mirror.files[path] = "100644", (LICENSE + "".join(line + "\n" for line in removed)).encode()
    elif path in mirror.files:
        strip.compare(topic, mirror.files[path][1].decode().splitlines(), removed, base.pinned)
    else:
        say(f"note: no {path} yet; series/series.py compose --record writes it")


def busy(repo):
    under_way = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
    return any((repo.gitdir / name).exists() for name in under_way)


def own_work(repo):
    """What build/linux has that the last composition hasn't, in a few words, or None."""
    if busy(repo):
        return "a rebase, merge or cherry-pick under way"
    if repo("status", "--porcelain", "--untracked-files=normal"):
        return "uncommitted changes"
    if repo("rev-list", "-1", "HEAD", BRANCH, "--not", COMPOSED):
        return "commits of its own"
    return None


def compose(record=False):
    base = bases.find()
    repo = repository(base)
    mirror = read_mirror(base, repo)
    old = Mirror(dict(mirror.files), mirror.kernel_dirs)
    stack = make_commits(base, mirror, repo, record)
    head = stack[-1][1]
    # No ref: nothing was composed, or a run was cut short in this very place; then the tree is ours.
    if repo.find(COMPOSED):
        work = own_work(repo)
        if work:
            raise Stop(f"build/linux has {work}, which composing would lose. Take it into the project with "
                       "`make refresh` (after committing it there), or throw it away by removing build/linux.")
        fresh = False
    else:
        (repo.gitdir / "index.lock").unlink(missing_ok=True)
        fresh = True
    if fresh or repo.find("HEAD") != head or repo("symbolic-ref", "-q", "HEAD", ok=(0, 1)) != BRANCH:
        say("compose: writing build/linux" + (" (1.8 GB the first time)" if fresh else ""))
        repo("update-ref", "-d", COMPOSED)
        repo("symbolic-ref", "HEAD", BRANCH)
        repo("reset", "-q", "--hard", head)
        repo("update-ref", COMPOSED, head)
    for line in mirror.write(old):
        say(line)
    say(f"build/linux: {len(stack) - 1} topics on {base.name}, commit {head[:12]}")
    return base, repo, stack
