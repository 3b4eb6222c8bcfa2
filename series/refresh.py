# SPDX-License-Identifier: GPL-2.0
"""refresh: what was committed in build/linux goes back into the mirror.

A commit belongs to the topic that its Topic: trailer names; a fixup! or amend!
commit to that of the commit it mends. All commits of a topic are folded into
one, in memory, in the topics' order. From that the new files, the edits and
the topics' texts are written anew; before anything is written, composing them
has to give the very tree that stands in build/linux.
"""
import contextlib
import dataclasses
import io
import re

import base as bases
from compose import (BRANCH, COMPOSED, SOMEBODY, Index, apply_topic, busy, changes, make_commits, read_fix,
                     read_mirror, repository, touched)
from run import LICENSE, Stop, say
from topics import LITTER, SIGNED, Mirror, parse, render, tidy

MENDS = re.compile(r"((?:fixup|amend)! )+")
HOWTO = ("End its message with a line `Topic: NAME`, NAME as in series/NN-NAME.md, or make it with "
         "git commit --fixup.")


@dataclasses.dataclass
class Commit:
    id: str
    parent: str
    message: str

    @property
    def subject(self):
        return self.message.split("\n", 1)[0]

    def __str__(self):
        return f"{self.id[:12]} (\"{self.subject}\")"


def refresh():
    base = bases.find()
    repo = repository(base)
    composed = repo.find(COMPOSED)
    if not composed:
        raise Stop("build/linux isn't composed: run `make compose` first")
    refuse_unready(repo, base)
    with contextlib.redirect_stderr(io.StringIO()):
        mirror = read_mirror(base, repo)
        topics = mirror.read_topics(read_fix(repo))
        known = make_commits(base, mirror, repo)
    if repo("rev-parse", f"{known[-1][1]}^{{tree}}") != repo("rev-parse", f"{composed}^{{tree}}"):
        raise Stop("the mirror was changed since it was composed, so refresh would overwrite that. Put your "
                   "change aside (git stash), refresh, and bring it back (git stash pop).")
    commits = sort(read_commits(repo, BRANCH), topics)
    before = {topic_of(c): c.message for c in read_commits(repo, composed)}
    steps = fold(repo, base, mirror, topics, commits)
    for topic in topics:
        text = newest_message(commits[topic.name])
        if text != without_trailer(before.get(topic.name, "")):
            take_message(topic, text)
    new = write_back(repo, base, mirror, topics, steps)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            head = make_commits(base, new, repo, record=base.pinned)[-1][1]
        except Stop as why:
            raise Stop(f"{why}\nNothing was written.")
    differ = ", ".join(path for _, path in repo.changed(BRANCH, head))
    if differ:
        raise Stop("the topics, folded and in order, don't give the tree that stands in build/linux; nothing was "
                   f"written. They differ in: {differ}\nPut the commits in order by hand: {rebase(repo)}")
    for line in said.getvalue().splitlines() + new.write(mirror):
        if not line.startswith("note:"):
            say(line)
    repo("update-ref", BRANCH, head)
    repo("update-ref", COMPOSED, head)
    say(f"refresh: {len(topics)} topics are as in build/linux, commit {head[:12]}")


def refuse_unready(repo, base):
    if busy(repo):
        raise Stop("a rebase, merge or cherry-pick is under way in build/linux: finish it, or abort it")
    if repo("status", "--porcelain"):
        raise Stop("build/linux has uncommitted changes: commit them there, with git commit --fixup=COMMIT of "
                   "the topic they belong to, or with `Topic: NAME` as the message's last line; or put them away")
    if repo("symbolic-ref", "-q", "HEAD", ok=(0, 1)) != BRANCH:
        raise Stop("build/linux isn't on its branch: git -C build/linux checkout steering")
    root = repo("rev-list", "--max-parents=0", BRANCH).split()
    if len(root) != 1 or repo("rev-parse", f"{root[0]}^{{tree}}") != base.tree:
        raise Stop(f"build/linux stands on another base than {base.name}: give the KSRC that it was composed with")


def rebase(repo):
    root = repo("rev-list", "--max-parents=0", BRANCH)
    return f"git -C build/linux rebase -i --autosquash {root[:12]}; then refresh again"


# ---- commits and their topics ----

def read_commits(repo, tip):
    out = repo("log", "--reverse", "--topo-order", "--format=%H%x00%P%x00%B%x01", tip)
    commits = [Commit(*entry.lstrip("\n").split("\0")) for entry in out.split("\1")[:-1]]
    for commit in commits:
        if " " in commit.parent:
            raise Stop(f"{commit} is a merge: a series is one line of commits; rebase it away")
    return commits[1:]          # without the base


def topic_of(commit):
    found = re.findall(r"^Topic: (\S+)$", tidy(commit.message.splitlines()).split("\n\n")[-1], re.M)
    return found[-1] if found else None


def without_trailer(message):
    head, gap, last = tidy(message.splitlines()).rpartition("\n\n")
    return head + gap + re.sub(r"^Topic: .*\n?", "", last, flags=re.M).rstrip("\n")


def sort(commits, topics):
    """{topic name: its commits, its own first}."""
    sorted_commits = {topic.name: [] for topic in topics}
    homes = []
    for commit in commits:
        name = topic_of(commit)
        mends = MENDS.match(commit.subject)
        if mends:
            target = commit.subject[mends.end():]
            name = next((home for mended, home in homes if target in (mended.subject, mended.id)), name)
        if not name:
            raise Stop(f"{commit} has no topic. {HOWTO}")
        if name not in sorted_commits:
            raise Stop(f"{commit} is for the topic `{name}`, which series/ doesn't have: write "
                       f"series/NN-{name}.md first (`# subject`, changelog, Signed-off-by)")
        sorted_commits[name].append(commit)
        homes.append((commit, name))
    for name, own in sorted_commits.items():
        if not own:
            raise Stop(f"the topic `{name}` has no commit in build/linux. If it is to go, remove its file in "
                       "series/ and what it brings; if it is new, give it a commit (an empty one will do).")
    return sorted_commits


def newest_message(commits):
    """The topic's text: that of its own commit, or of the last amend!."""
    text = commits[0].message
    for commit in commits[1:]:
        if commit.subject.startswith("amend! "):
            text = commit.message.split("\n", 1)[1].strip("\n")
    return without_trailer(text)


def take_message(topic, text):
    topic.subject, _, body = text.partition("\n")
    topic.body = body.strip("\n")
    if not SIGNED.search(topic.body.split("\n\n")[-1]):
        raise Stop(f"the commit of topic `{topic.name}` has no Signed-off-by at the end of its message: "
                   "git commit --amend or --fixup=reword it")


# ---- folding ----

def fold(repo, base, mirror, topics, commits):
    """[{path: entry or None}], what each topic changes, its commits made one."""
    diffs = {c.id: raw(repo, c) for own in commits.values() for c in own}
    index = Index(repo, base.tree, sorted(set().union(touched(topics, mirror), *diffs.values())))
    steps = []
    for topic in topics:
        before = index.entries()
        if topic.keys["unifdef"]:
            check_strip(repo, topic, mirror, commits[topic.name], diffs)
            with contextlib.redirect_stderr(io.StringIO()):
                apply_topic(index, topic, mirror)
        else:
            for commit in commits[topic.name]:
                pick(index, commit, diffs[commit.id], topic)
        steps.append(changes(before, index.entries()))
    return steps


def raw(repo, commit):
    """{path: (entry before, entry after)}; None is no file."""
    out = repo("diff-tree", "-r", "-z", "--no-renames", "--raw", commit.parent, commit.id).split("\0")
    diff = {}
    for head, path in zip(out[0::2], out[1::2]):
        old_mode, mode, old, blob, _ = head[1:].split()
        diff[path] = [None if int(m) == 0 else (m, b) for m, b in ((old_mode, old), (mode, blob))]
    return diff


def pick(index, commit, diff, topic):
    """Do a commit to the index: as it is where nothing differs, else by a 3-way merge."""
    now = index.entries()
    if all(now.get(path) == before for path, (before, _) in diff.items()):
        index.put({path: after for path, (_, after) in diff.items()})
        return
    patch = index.run("diff-tree", "-p", "--full-index", "--binary", "--no-renames",
                      commit.parent, commit.id).stdout
    done = index.run("apply", "--cached", "--3way", "--whitespace=nowarn", "-", stdin=patch, ok=None)
    index.known = None
    if done.returncode:
        raise Stop(f"{commit} doesn't fit into topic `{topic.name}`: a topic in between changes the same lines.\n"
                   f"{done.stderr.decode(errors='replace').strip()}\nFold it by hand: {rebase(index)}")


def check_strip(repo, topic, mirror, commits, diffs):
    """A strip's commit is what guard diffs and unifdef make of its parent, and nothing else."""
    own = commits[0]
    index = Index(repo, own.parent, sorted({*touched([topic], mirror), *diffs[own.id]}))
    before = index.entries()
    with contextlib.redirect_stderr(io.StringIO()):
        apply_topic(index, topic, mirror)
    meant = changes(before, index.entries())
    done = {path: after for path, (_, after) in diffs[own.id].items()}
    differ = sorted(set(changes(meant, done)).union(*(diffs[c.id] for c in commits[1:])))
    if differ:
        raise Stop(f"the strip `{topic.name}` was edited in build/linux ({', '.join(differ)}). A strip is its guard "
                   "diffs and unifdef, so an edit there would be lost. Commit it to another topic; what stays or "
                   f"goes is decided in the mirror, by FILE.{topic.name}.diff and {topic.path}.")


# ---- writing back ----

def write_back(repo, base, mirror, topics, steps):
    """The mirror as these steps make it."""
    new = Mirror(dict(mirror.files), mirror.kernel_dirs)
    plain = [(f"{t.subject}\n\n{t.body}\n", t.author, step) for t, step in zip(topics, steps)]
    stack = repo.commits(base.tree, [(base.name + "\n", SOMEBODY, {}), *plain], base.date)
    for topic, parent, commit in zip(topics, stack, stack[1:]):
        if topic.patch:
            write_fix(repo, topic, commit, new)
            continue
        if not topic.keys["unifdef"]:
            for path in topic.keys["new"] + list(mirror.edits(topic).values()):
                new.files.pop(path, None)
            topic.keys["new"] = write_files(repo, topic, parent, commit, new)
        mode, data = mirror.files[topic.path]
        was = parse(topic.path, data)
        if (was.subject, was.body, set(was.keys["new"])) != (topic.subject, topic.body, set(topic.keys["new"])):
            new.files[topic.path] = mode, render(topic, data)
    return new


def write_files(repo, topic, parent, commit, new):
    """Put a commit's files and edits into the mirror; returns the new files."""
    brought = []
    entries = repo.files(commit)
    for status, path in repo.changed(parent, commit):
        if status != "A":
            continue
        if path.split("/")[0] not in new.kernel_dirs or path.endswith(".diff") or LITTER.search(path):
            raise Stop(f"topic `{topic.name}` brings {path}, for which the mirror has no place: a new file stands "
                       "in a directory of the kernel, and is no .diff or backup")
        brought.append(path)
        new.files[path] = entries[path][0], repo.run("cat-file", "blob", entries[path][1]).stdout
    out = repo.run("diff-tree", "-p", "-U3", "--no-renames", "--no-ext-diff", "--no-textconv",
                   "--diff-filter=a", parent, commit).stdout
    for diff in re.split(rb"^(?=diff --git )", out, flags=re.M)[1:]:
        path = re.match(rb"diff --git a/(.*) b/\1\n", diff)[1].decode()
        if re.search(rb"^Binary files", diff, re.M):
            raise Stop(f"topic `{topic.name}` edits {path}, which is binary: the mirror can't hold that")
        diff = re.sub(rb"^index .*\n", b"", diff, count=1, flags=re.M)
        if diff.split(b"\n", 2)[1].startswith(b"--- "):         # no change of mode: a plain diff
            diff = diff.split(b"\n", 1)[1]
        new.files[f"{path}.{topic.name}.diff"] = "100644", LICENSE.encode() + diff
    return brought


def write_fix(repo, topic, commit, new):
    """A fix is written anew only when it says something else than its patch."""
    _, patch = new.files[topic.path]
    mail = repo.run("format-patch", "-1", "--stdout", "--no-signature", "--zero-commit", "--no-renames",
                    commit).stdout
    def essence(data):
        return repo("patch-id", "--verbatim", stdin=data, ok=(0, 129)).split()[:1]
    same = read_fix(repo)(topic.path, patch)
    if essence(mail) != essence(patch) or (same.subject, same.body) != (topic.subject, topic.body):
        new.files[topic.path] = "100644", mail
