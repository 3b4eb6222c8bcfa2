# SPDX-License-Identifier: GPL-2.0
"""series: the composition as patches for mailing, and the proof that they say the same.

The Topic: trailer is ours alone, so the commits are made once more without it.
The proof is git am of the mails on the base's version of the files they touch:
every blob, mode and message has to come out as composed.
"""
import functools
import pathlib
import re
import shutil
import tempfile

from compose import SOMEBODY, compose
from refresh import raw, read_commits, without_trailer
from run import BUILD, LINUX, ROOT, Repo, Stop, environment, run, say, text
from topics import tidy

OUT = BUILD / "series"
CUT = ("In a changelog, a line that looks like a patch (`---`, `diff -`, `Index: `) ends it for git am: "
       "indent such a line.")


def series():
    base, repo, stack = compose()
    steps, messages = [(base.name + "\n", SOMEBODY, {})], []
    for commit, (topic, _) in zip(read_commits(repo, stack[-1][1]), stack[1:]):
        changes = {path: after for path, (_, after) in raw(repo, commit).items()}
        if not changes:
            raise Stop(f"the topic `{topic.name}` is empty: give it a file or an edit, or remove {topic.path}")
        messages.append(without_trailer(commit.message))
        steps.append((messages[-1] + "\n", topic.author, changes))
    if not messages:
        raise Stop("there are no topics in series/ yet")
    plain = repo.commits(base.tree, steps, base.date)
    shutil.rmtree(OUT, ignore_errors=True)
    name, email = stack[1][0].author
    sender = {"NAME": name, "EMAIL": email, "DATE": f"{base.date} +0000"}
    repo("format-patch", "-q", "--cover-letter", "--cover-from-description=none", "--numbered",
         "--subject-prefix=PATCH net-next", "--no-signature", "--no-renames", "-o", OUT,
         f"{plain[0]}..{plain[-1]}", env={f"GIT_COMMITTER_{key}": value for key, value in sender.items()})
    write_cover()
    prove(base, repo, plain, messages)
    return base, repo, stack


def write_cover():
    cover = ROOT / "series/00-cover.md"
    lines = cover.read_text().partition("\n---\n")[0].splitlines() if cover.exists() else []
    if not lines or not lines[0].startswith("# ") or not tidy(lines[1:]):
        raise Stop("series/00-cover.md, the cover letter, has to begin with `# subject` and an empty line, "
                   "then its text")
    path = OUT / "0000-cover-letter.patch"
    letter = path.read_text()
    letter = letter.replace("*** SUBJECT HERE ***", lines[0][2:].strip())
    path.write_text(letter.replace("*** BLURB HERE ***", tidy(lines[1:])))


def prove(base, repo, plain, messages):
    paths = [path for _, path in repo.changed(base.tree, plain[-1])]
    with tempfile.TemporaryDirectory() as temp:
        run(["git", "init", "-q", "--template=", temp])
        am = Repo(pathlib.Path(temp) / ".git", worktree=temp)
        (am.gitdir / "objects/info/alternates").write_text(f"{repo.gitdir / 'objects'}\n")
        entries = repo.files(base.tree, *paths)
        am("update-index", "-z", "--index-info",
           stdin="".join(f"{mode} {blob}\t{path}\0" for path, (mode, blob) in entries.items()))
        who = {"GIT_COMMITTER_NAME": "git am", "GIT_COMMITTER_EMAIL": "am@invalid"}
        am("-c", "user.name=am", "-c", "user.email=am@invalid", "commit", "-q", "-m", "base", env=who)
        am("checkout-index", "-a")
        mails = sorted(OUT.glob("*.patch"))[1:]
        done = am.run("am", "-q", *mails, env=who, ok=None)
        if done.returncode:
            said = text(done.stderr + done.stdout).splitlines()
            why = [line for line in said if line.startswith(("error: ", "Patch failed "))]
            raise Stop("\n".join(["git am refuses what format-patch wrote:", *why, CUT]))
        wanted, got = repo.files(plain[-1], *paths), am.files("HEAD")
        wrong = sorted(p for p in wanted.keys() | got.keys() if wanted.get(p) != got.get(p))
        if wrong:
            raise Stop(f"after git am these differ from build/linux: {', '.join(wrong)}. A line that ends in a "
                       "carriage return doesn't survive a mail.")
        came_out = [c.message.strip() for c in read_commits(am, "HEAD")]
        for meant, came in zip(messages, came_out, strict=True):
            if meant != came:
                raise Stop(f"git am cuts the message of `{meant.splitlines()[0]}`. {CUT}")
    say(f"build/series: {len(mails)} patches and a cover letter. git am of them on the base's {len(entries)} files "
        f"gives the same blob and mode for all {len(wanted)} touched files, and the same messages.")


def checkpatch():
    """checkpatch --strict on every patch but the strips, whose lines aren't ours."""
    base, repo, stack = series()
    bad = []
    mails = sorted(OUT.glob("*.patch"))[1:]
    for mail, (topic, _) in zip(mails, stack[1:], strict=True):
        if topic.keys["unifdef"]:
            continue
        for line, kind in checkpatch_says(LINUX, mail):
            file = line.split(":", 1)[0]
            if kind not in base_style(base.tree, repo, file):
                bad.append(f"    {mail.name[:4]} {line}")
    if bad:
        raise Stop("checkpatch --strict says what it doesn't of the base:\n" + "\n".join(bad))
    say("checkpatch --strict: nothing to say about "
        f"{sum(not t.keys['unifdef'] for t, _ in stack[1:])} patches")


def checkpatch_says(where, *what):
    """[(line, what kind of message)] of checkpatch."""
    # Without a repository: ours doesn't have the commits that a Fixes: line names.
    done = run(["perl", LINUX / "scripts/checkpatch.pl", f"--root={LINUX}", "--strict", "--terse",
                "--showfile", "--show-types", "--no-summary", *what],
               cwd=where, ok=None, env=environment(GIT_DIR="none"))
    lines = text(done.stdout + done.stderr).splitlines()
    found = [(line, re.search(r"(?:ERROR|WARNING|CHECK):[A-Z_]+: .*", line)) for line in lines]
    return [(line, kind[0] if kind else line) for line, kind in found]


@functools.cache
def base_style(tree, repo, file):
    """What checkpatch says about the base's version of a file: its style, which an edit keeps."""
    if not repo.files(tree, file):
        return set()
    with tempfile.TemporaryDirectory() as temp:
        copy = pathlib.Path(temp, file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(repo.run("cat-file", "blob", f"{tree}:{file}").stdout)
        return {kind for _, kind in checkpatch_says(temp, "-f", file)}
