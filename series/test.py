#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Test series.py, in TAP, with no network: a kernel of a few files stands in.

Each test gets a project of its own, composed on KERNEL: a strip topic, the
topic that replaces what it took out, and a third that edits a file of the
second. The guards are tested by doing what they guard against.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True

from run import LICENSE     # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SIGNED = "Signed-off-by: A Developer <dev@example.org>"

KERNEL = {
    "Makefile": "VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\nEXTRAVERSION =\n",
    "MAINTAINERS": "A\nB\nC\n",
    ".gitattributes": "*.[ch] diff=cpp\n",
    "include/linux/dev.h": "struct dev {\n\tint a;\n#ifdef CONFIG_OLD\n\tint old;\n#endif\n};\n",
    "include/linux/other.h": "int other;\n",
    "net/core/dev.c": """\
#include <linux/dev.h>

#ifdef CONFIG_OLD
/* The old choice. */
static int old_pick(struct dev *dev)
{
	return dev->old;
}

int rate(struct dev *dev)
{
	return dev->a;
}
EXPORT_SYMBOL(rate);
#endif

#if 0
int never;
#endif

int pick(struct dev *dev)
{
#ifdef CONFIG_OLD
	return old_pick(dev);
#endif
	return 0;
}

int last(void)
{
	return 1;
}
""",
}

PROJECT = {
    "series/00-cover.md": "# net: new for old\n\nAll of it.\n",
    "series/10-strip-old.md": f"# net: take old out\n\nRoom.\n\n{SIGNED}\n---\nunifdef: -UCONFIG_OLD\n"
                              "over: net/core/dev.c\nover: include/linux/dev.h\n",
    "series/20-new.md": f"# net: new\n\nWhat it does:\n\n  # echo 1 > new\n\n{SIGNED}\n---\nnew: net/core/new.c\n",
    "series/30-docs.md": f"# net: say so\n\nText.\n\n{SIGNED}\n---\nnew: net/core/try.sh\n",
    "net/core/dev.c.strip-old.diff": """\
--- a/net/core/dev.c
+++ b/net/core/dev.c
@@ -7,12 +7,12 @@ static int old_pick(struct dev *dev)
 	return dev->old;
 }
 
+#endif
 int rate(struct dev *dev)
 {
 	return dev->a;
 }
 EXPORT_SYMBOL(rate);
-#endif
 
 #if 0
 int never;
""",
    "net/core/dev.c.new.diff": """\
--- a/net/core/dev.c
+++ b/net/core/dev.c
@@ -12,7 +12,7 @@ int never;
 
 int pick(struct dev *dev)
 {
-	return 0;
+	return new_pick(dev);
 }
 
 int last(void)
""",
    "net/core/new.c": "int new_pick(struct dev *dev)\n{\n\treturn 2;\n}\n\nint a;\n\nint b;\n\nint c;\n\nint d;\n",
    "net/core/new.c.docs.diff": "--- a/net/core/new.c\n+++ b/net/core/new.c\n@@ -1,3 +1,4 @@\n+/* Say so. */\n"
                                " int new_pick(struct dev *dev)\n {\n \treturn 2;\n",
    "net/core/try.sh": "#!/bin/sh\necho tried\n",
    "MAINTAINERS.docs.diff": "--- a/MAINTAINERS\n+++ b/MAINTAINERS\n@@ -1,3 +1,4 @@\n A\n B\n+BB\n C\n",
}
PROJECT = {path: LICENSE * path.endswith(".diff") + content for path, content in PROJECT.items()}


def write(top, files):
    for path, content in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(content)


def git(where, *args, ok=(0,)):
    who = ["-c", "user.name=A Developer", "-c", "user.email=dev@example.org", "-c", "commit.gpgSign=false"]
    done = subprocess.run(["git", *who, *args], cwd=where, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | {"GIT_EDITOR": "true"})
    assert done.returncode in ok, f"git {' '.join(args)}: {done.stderr}"
    return done.stdout.rstrip("\n")


class Project:
    """A project in a scratch directory, on a kernel there."""

    def __init__(self, top):
        self.top, self.linux, self.kernel = top / "project", top / "project/build/linux", top / "kernel"
        self.env = {**os.environ, "KSRC": str(self.kernel), "XDG_CACHE_HOME": str(top / "cache")}

    def tool(self, *args, fails=None):
        """Run a verb; returns what it said. fails: what its refusal has to say."""
        done = subprocess.run([sys.executable, self.top / "series/series.py", *args], env=self.env, capture_output=True, text=True)
        said = done.stderr + done.stdout
        assert "Traceback" not in said, said
        if fails is None:
            assert done.returncode == 0, said
        else:
            assert done.returncode == 1, f"should have failed, with: {fails}\n{said}"
            assert re.search(fails, said), f"should have said: {fails}\n{said}"
        return said

    def write(self, **files):
        write(self.top, {path.replace("__", "/"): content for path, content in files.items()})

    def put(self, path, content):
        write(self.top, {path: content})

    def change(self, path, old, new):
        content = (self.top / path).read_text()
        assert old in content, f"{old} isn't in {path}"
        (self.top / path).write_text(content.replace(old, new, 1))

    def edit(self, path, old, new, *commit):
        """Edit a file in build/linux; commit says how, if at all."""
        content = (self.linux / path).read_text()
        assert old in content, f"{old} isn't in {path}"
        (self.linux / path).write_text(content.replace(old, new, 1))
        if commit:
            git(self.linux, "commit", "-qa", *commit)

    def commit_of(self, topic):
        return git(self.linux, "log", "--format=%H", f"--grep=^Topic: {topic}$", "-1")

    def mirror(self):
        """{path: (content, mode, mtime)} of everything that refresh may write."""
        files = (p for p in self.top.rglob("*") if p.is_file() and "build" not in p.relative_to(self.top).parts)
        return {str(p.relative_to(self.top)): (p.read_bytes(), p.stat().st_mode, p.stat().st_mtime_ns) for p in files}


def times(tree):
    return {p: p.stat().st_mtime_ns for p in tree.rglob("*") if p.is_file() and ".git" not in p.parts}


# ---- compose ----

def test_one_commit_a_topic(p):
    assert git(p.linux, "log", "--format=%s", "--reverse").split("\n") == [
        f"Linux 7.3.4 (KSRC at {git(p.kernel, 'rev-parse', '--short', 'HEAD')})", "net: take old out", "net: new", "net: say so"]
    assert git(p.linux, "log", "-1", "--format=%an <%ae> %cn|%(trailers:key=Topic,valueonly)").strip() == \
        "A Developer <dev@example.org> A Developer|docs"
    assert git(p.linux, "symbolic-ref", "HEAD") == "refs/heads/steering"
    assert git(p.linux, "status", "--porcelain") == ""


def test_content_and_modes(p):
    dev = (p.linux / "net/core/dev.c").read_text()
    assert "old" not in dev and "CONFIG_OLD" not in dev and "new_pick" in dev
    assert "EXPORT_SYMBOL(rate)" in dev, "what the guard diff lets out stays"
    assert "#if 0\nint never;" in dev, "unifdef takes no #if 0 along"
    assert (p.linux / "net/core/new.c").read_text().startswith("/* Say so. */")
    assert os.access(p.linux / "net/core/try.sh", os.X_OK) and not os.access(p.linux / "net/core/new.c", os.X_OK)
    assert (p.linux / "MAINTAINERS").read_text() == "A\nB\nBB\nC\n"
    assert not (p.linux / "net/core/dev.c.new.diff").exists()


def test_again_touches_nothing(p):
    before, head = times(p.linux), git(p.linux, "rev-parse", "HEAD")
    p.tool("compose")
    assert times(p.linux) == before and git(p.linux, "rev-parse", "HEAD") == head


def test_a_change_touches_its_file_only(p):
    before = times(p.linux)
    p.change("net/core/new.c", "int d;", "int dd;")
    p.tool("compose")
    after = times(p.linux)
    assert [f.name for f in after if after[f] != before.get(f)] == ["new.c"]


def test_same_ids_elsewhere(p):
    with tempfile.TemporaryDirectory() as temp:
        shutil.copytree(p.top, f"{temp}/elsewhere", ignore=shutil.ignore_patterns("build"))
        subprocess.run([sys.executable, f"{temp}/elsewhere/series/series.py", "compose"], env=p.env, check=True, capture_output=True)
        assert git(f"{temp}/elsewhere/build/linux", "rev-parse", "HEAD") == git(p.linux, "rev-parse", "HEAD")


def test_run_cut_short_heals(p):
    head = git(p.linux, "rev-parse", "HEAD")
    git(p.linux, "update-ref", "-d", "refs/steering/composed")
    (p.linux / "net/core/dev.c").write_text("half")
    (p.linux / ".git/index.lock").write_text("")
    p.tool("compose")
    assert git(p.linux, "rev-parse", "HEAD") == head and git(p.linux, "status", "--porcelain") == ""


def test_topic_removed(p):
    for path in ("series/30-docs.md", "net/core/new.c.docs.diff", "net/core/try.sh", "MAINTAINERS.docs.diff"):
        (p.top / path).unlink()
    p.tool("compose")
    assert not (p.linux / "net/core/try.sh").exists() and (p.linux / "MAINTAINERS").read_text() == "A\nB\nC\n"


def test_offset_is_said(p):
    p.change("net/core/dev.c.new.diff", "@@ -12,7 +12,7 @@", "@@ -10,7 +10,7 @@")
    assert "offset 2 lines in net/core/dev.c, hunk 1 (new)" in p.tool("compose")


def test_fix_comes_first(p):
    fix = p.kernel
    write(fix, {"include/linux/other.h": "int other;\nint more;\n"})
    git(fix, "commit", "-qam", f"net: mend\n\nWhy.\n\n{SIGNED}")
    mail = git(fix, "format-patch", "-1", "--stdout") + "\n"
    git(fix, "reset", "-q", "--hard", "HEAD^")
    p.put("series/fixes/0001-mend.patch", mail)
    p.tool("compose")
    assert git(p.linux, "log", "--format=%s", "--reverse").split("\n")[1] == "net: mend"
    p.tool("refresh")
    assert (p.top / "series/fixes/0001-mend.patch").read_text() == mail
    p.edit("include/linux/other.h", "int more", "int most", "--fixup", p.commit_of("fixes/0001-mend"))
    p.tool("refresh")
    assert "+int most" in (p.top / "series/fixes/0001-mend.patch").read_text()
    p.tool("series")
    assert "Topic:" not in (p.top / "build/series/0001-net-mend.patch").read_text()


# ---- compose refuses ----

def test_new_file_that_the_base_has(p):
    p.put("include/linux/other.h", "int mine;\n")
    p.change("series/20-new.md", "new: net", "new: include/linux/other.h\nnew: net")
    p.tool("compose", fails=r"include/linux/other.h: the base has this file .*\.new\.diff")


def test_new_file_of_an_earlier_topic(p):
    p.change("series/30-docs.md", "new: net/core/try.sh", "new: net/core/try.sh\nnew: net/core/new.c")
    p.tool("compose", fails="20-new.md brings net/core/new.c already")


def test_new_file_of_no_topic(p):
    p.put("net/core/stray.c", "int stray;\n")
    p.tool("compose", fails="net/core/stray.c: no topic brings it: add `new: net/core/stray.c`")


def test_backup_files_are_no_content(p):
    p.put("net/core/new.c~", "old\n")
    p.tool("compose")


def test_new_line_without_file(p):
    (p.top / "net/core/new.c").unlink()
    p.tool("compose", fails="`new: net/core/new.c`, but there is no such file")


def test_diff_of_no_topic(p):
    (p.top / "net/core/dev.c.new.diff").rename(p.top / "net/core/dev.c.knew.diff")
    p.tool("compose", fails="dev.c.knew.diff: there is no topic `knew`")


def test_diff_that_does_not_apply(p):
    p.change("net/core/dev.c.new.diff", "-\treturn 0;", "-\treturn 00;")
    p.tool("compose", fails=r"(?s)dev.c.new.diff: the hunk\n    @@ -12,7 .*doesn't apply exactly.*up to date")


def test_no_fuzz(p):
    p.change("net/core/dev.c.new.diff", " int last(void)", " int list(void)")
    p.tool("compose", fails="dev.c.new.diff: the hunk")


def test_diff_for_a_file_that_is_not_there(p):
    p.put("net/core/gone.c.strip-old.diff", "--- a/net/core/gone.c\n+++ b/net/core/gone.c\n@@ -1 +1 @@\n-#if A\n+#if B\n")
    p.tool("compose", fails=r"(?s)gone.c.strip-old.diff: it doesn't apply exactly.*does not exist")


def test_diff_under_a_wrong_name(p):
    (p.top / "net/core/dev.c.new.diff").rename(p.top / "net/core/dev.h.new.diff")
    p.tool("compose", fails=r"dev.h.new.diff: has to be one unified diff, with `--- a/net/core/dev.h`")


def test_diff_that_makes_a_file(p):
    p.put("net/core/extra.c.new.diff", "--- /dev/null\n+++ b/net/core/extra.c\n@@ -0,0 +1 @@\n+int extra;\n")
    p.tool("compose", fails="extra.c.new.diff: makes a new file; put net/core/extra.c itself")


def test_guard_diff_with_code(p):
    p.change("net/core/dev.c.strip-old.diff", " \treturn dev->a;\n", "-\treturn dev->a;\n+\treturn dev->b;\n")
    p.tool("compose", fails="(?s)dev.c.strip-old.diff: a strip's diff may change preprocessor lines only.*dev->b")


def test_leftover_in_a_stripped_file(p):
    p.change("net/core/dev.c.strip-old.diff", "+#endif\n", "+#endif\n+#if IS_ENABLED(CONFIG_OLD)\n+#endif\n")
    p.change("net/core/dev.c.strip-old.diff", "@@ -7,12 +7,12 @@", "@@ -7,12 +7,14 @@")
    p.tool("compose", fails=r"(?s)strip-old: still named after the strip:\n    net/core/dev.c:3: #if IS_ENABLED\(CONFIG_OLD\)\n.*allow:")


def test_leftover_elsewhere(p):
    p.change("series/10-strip-old.md", "over: include/linux/dev.h\n", "")
    p.tool("compose", fails="(?s)still named after the strip:\n    include/linux/dev.h:3: #ifdef CONFIG_OLD")
    p.change("series/10-strip-old.md", "over: net", "allow: include/linux/dev.h #ifdef CONFIG_OLD\nover: net")
    p.tool("compose")
    p.change("series/10-strip-old.md", "over: net", "allow: net/core/dev.c\nover: net")
    assert "`allow: net/core/dev.c` isn't needed" in p.tool("compose")


def test_over_a_file_that_is_not_there(p):
    p.change("series/10-strip-old.md", "over: include/linux/dev.h", "over: include/linux/gone.h")
    p.tool("compose", fails="`over: include/linux/gone.h`: the base has no such file")


def test_topic_files(p):
    p.put("series/20-again.md", f"# s\n\nt\n\n{SIGNED}\n")
    p.tool("compose", fails="20-new.md: series/20-again.md has the number 20 too")
    (p.top / "series/20-again.md").unlink()
    for old, new, fails in (("# net: new", "net: new", "has to begin with `# subject`"),
                            (SIGNED, "Thanks", "has to end with a line `Signed-off-by"),
                            ("new: net", "knew: net", "`knew: net/core/new.c`: below the ---"),
                            ("---\n", "---\nunifdef: -UA\n", "needs both `unifdef:` and `over:`")):
        p.change("series/20-new.md", old, new)
        p.tool("compose", fails=fails)
        p.change("series/20-new.md", new, old)


def test_own_work_is_not_lost(p):
    p.change("net/core/new.c", "int d;", "int dd;")
    p.edit("net/core/dev.c", "return 1", "return 7")
    p.tool("compose", fails="(?s)uncommitted changes.*make refresh")
    git(p.linux, "commit", "-qam", "mine\n\nTopic: new")
    p.tool("compose", fails="(?s)commits of its own.*make refresh")
    git(p.linux, "checkout", "-q", "HEAD^")
    p.tool("compose", fails="commits of its own")
    git(p.linux, "checkout", "-q", "steering")
    git(p.linux, "reset", "-q", "--hard", "HEAD^")
    (p.linux / "net/core/untracked.c").write_text("")
    p.tool("compose", fails="uncommitted changes")
    (p.linux / "net/core/untracked.c").unlink()
    (p.linux / ".git/rebase-merge").mkdir()
    p.tool("compose", fails="a rebase, merge or cherry-pick under way")


# ---- the base ----

def test_record_names_what_changed_upstream(p):
    said = p.tool("compose", "--record")
    assert "wrote   series/strip-old.removed" in said
    head, *lines = (p.top / "series/strip-old.removed").read_text().splitlines()
    assert head + "\n" == LICENSE
    assert [line.split(" ", 1)[1] for line in lines] == ["net/core/dev.c old_pick", "net/core/dev.c pick", "include/linux/dev.h dev"]
    write(p.kernel, {"net/core/dev.c": KERNEL["net/core/dev.c"].replace("return dev->old;", "return dev->old + 1;")})
    p.change("net/core/dev.c.strip-old.diff", " \treturn dev->old;\n }\n", " }\n")
    p.change("net/core/dev.c.strip-old.diff", "@@ -7,12 +7,12 @@", "@@ -8,11 +8,11 @@")
    git(p.kernel, "commit", "-qam", "a fix upstream")
    said = p.tool("compose")
    assert "changed upstream since: net/core/dev.c: old_pick; strip-old takes it out" in said and "dev.c: pick" not in said
    p.put("series/strip-old.removed", "\n".join(lines[1:]).replace(" dev\n", " dev\n0 x y\n") + "\n0 net/core/dev.c older\n")
    said = p.tool("compose")
    assert "new upstream since: net/core/dev.c: old_pick" in said and "gone upstream since: net/core/dev.c: older" in said


def test_ksrc(p):
    write(p.kernel, {"MAINTAINERS": "changed\n"})
    assert "KSRC has uncommitted changes" in p.tool("compose")
    tree = git(p.linux, "rev-parse", "HEAD^{tree}")
    git(p.kernel, "reset", "-q", "--hard")
    (p.kernel / ".git").rename(p.kernel.parent / "aside")
    p.tool("compose")
    assert git(p.linux, "rev-parse", "HEAD^{tree}") == tree, "a plain tree composes to the same"
    assert not (p.kernel / ".git").exists()
    write(p.kernel, {".config": ""})
    p.tool("compose", fails="make mrproper")
    p.env["KSRC"] = str(p.top)
    p.tool("compose", fails="KSRC is no kernel tree")


def archive(p, *versions):
    """An archive of these versions: an apt-get and apt-cache that serve them."""
    folder = p.top.parent / "archive"
    for version in versions:
        package = folder / version
        write(package, {"DEBIAN/control": f"Package: linux-source-7.3\nVersion: {version}\nArchitecture: all\n"
                                          "Maintainer: x <x@example.org>\nDescription: x\n"})
        (package / "usr/src").mkdir(parents=True)
        source = folder / "linux-source-7.3"
        write(source, KERNEL)
        subprocess.run(["tar", "-cJf", package / "usr/src/linux-source-7.3.tar.xz", "-C", folder, source.name], check=True)
        subprocess.run(["dpkg-deb", "-b", package, folder / f"linux-source-7.3_{version}_all.deb"], check=True, capture_output=True)
    bin_dir = p.top.parent / "bin"
    write(bin_dir, {"apt-get": f"""#!/bin/sh
echo "$@" >> {folder}/log
case "$*" in
*indextargets*) echo http://mirror.invalid/debian/ ;;
*update*) exit {0 if versions else 100} ;;
*download*) for last; do :; done; cp "{folder}/linux-source-7.3_${{last#*=}}_all.deb" . ;;
esac
""", "apt-cache": "#!/bin/sh\n" + "".join(f"echo ' linux-source-7.3 | {v} | somewhere'\n" for v in versions)})
    for name in ("apt-get", "apt-cache"):
        (bin_dir / name).chmod(0o755)
    del p.env["KSRC"]
    p.env["PATH"] = f"{bin_dir}:{os.environ['PATH']}"
    return folder


def pin(p, version, sha256="0"):
    p.put("series/base", f"package=linux-source-7.3\nsuite=s\nversion={version}\nsha256={sha256}\n")


def test_base_fetched_once(p):
    folder = archive(p, "7.3.4-1", "7.3.9-1", "7.3.10-1")
    deb = folder / "linux-source-7.3_7.3.4-1_all.deb"
    pin(p, "7.3.4-1", subprocess.run(["sha256sum", deb], capture_output=True, text=True).stdout.split()[0])
    path = pathlib.Path(p.tool("base").splitlines()[-1])
    assert path.name == "linux-7.3.4-1" and (path / "net/core/dev.c").exists()
    (folder / "log").unlink()
    shutil.rmtree(path.with_name(path.name + ".git"))
    p.tool("base")
    shutil.rmtree(path)
    p.tool("base")
    shutil.rmtree(p.linux)
    p.tool("compose", "--record")
    assert git(p.linux, "log", "--format=%s", "--reverse").split("\n")[0] == "Linux 7.3.4 (Debian 7.3.4-1)"
    assert not (folder / "log").exists(), "a complete cache needs no network"
    p.put("series/strip-old.removed", "0 net/core/dev.c old_pick\n")
    p.tool("compose", fails="(?s)isn't what series/strip-old.removed says:.*--record")
    p.change("series/strip-old.removed", "0 net", "1 net")


def test_base_gone_from_the_archive(p):
    folder = archive(p, "7.3.9-1", "7.3.10-1")
    pin(p, "7.3.4-1")
    said = p.tool("base")
    assert "7.3.4-1 is pinned and gone from the archive; using the newer 7.3.10-1" in said and "linux-7.3.10-1" in said
    (folder / "log").unlink()
    assert "using the newer 7.3.10-1" in p.tool("base") and not (folder / "log").exists()
    pin(p, "7.3.11-1")
    p.tool("base", fails="older than the pinned")


def test_base_with_a_wrong_sum(p):
    archive(p, "7.3.4-1")
    pin(p, "7.3.4-1")
    p.tool("base", fails="sha256 isn't the one in series/base")
    assert not list(pathlib.Path(p.env["XDG_CACHE_HOME"]).glob("*/linux-*.git"))


def test_no_network_and_no_cache(p):
    archive(p)
    pin(p, "7.3.4-1")
    p.tool("base", fails="no base kernel: it isn't in the cache and could not be fetched.*KSRC=DIR")


# ---- refresh ----

def test_refresh_without_change(p):
    before, files = p.mirror(), times(p.linux)
    p.tool("refresh")
    assert p.mirror() == before and times(p.linux) == files


def test_round_trip(p):
    p.edit("net/core/dev.c", "return new_pick(dev);", "return new_pick(dev) + 1;", "--fixup", p.commit_of("new"))
    p.edit("net/core/new.c", "int d;", "int dd;", "--fixup", p.commit_of("new"))
    p.edit("net/core/dev.c", "return 1;", "return 11;", "-m", "more\n\nTopic: docs")
    (p.linux / "net/core/more.c").write_text("int more;\n")
    (p.linux / "net/core/run").symlink_to("try.sh")
    git(p.linux, "add", "-A")
    git(p.linux, "commit", "-qm", "a file\n\nTopic: new")
    (p.linux / "net/core/try.sh").chmod(0o644)
    git(p.linux, "commit", "-qa", "--fixup", p.commit_of("docs"))
    git(p.linux, "commit", "-q", "--allow-empty", "-m", f"amend! net: say so\n\nnet: say it\n\nBetter.\n\n{SIGNED}\nTopic: docs")
    tree, files = git(p.linux, "rev-parse", "HEAD^{tree}"), times(p.linux)
    p.tool("refresh")
    assert times(p.linux) == files and git(p.linux, "rev-parse", "HEAD^{tree}") == tree
    assert git(p.linux, "log", "--format=%s", "--reverse", "-3").split("\n") == ["net: take old out", "net: new", "net: say it"]
    assert "int dd;" in (p.top / "net/core/new.c").read_text() and "Say so" not in (p.top / "net/core/new.c").read_text()
    assert "new_pick(dev) + 1" in (p.top / "net/core/dev.c.new.diff").read_text()
    assert "return 11" in (p.top / "net/core/dev.c.docs.diff").read_text()
    assert (p.top / "series/20-new.md").read_text().endswith("---\nnew: net/core/new.c\nnew: net/core/more.c\nnew: net/core/run\n")
    assert (p.top / "series/30-docs.md").read_text() == f"# net: say it\n\nBetter.\n\n{SIGNED}\n---\nnew: net/core/try.sh\n"
    assert (p.top / "net/core/run").is_symlink() and not os.access(p.top / "net/core/try.sh", os.X_OK)
    before, head = p.mirror(), git(p.linux, "rev-parse", "HEAD")
    p.tool("compose")
    p.tool("refresh")
    assert p.mirror() == before and git(p.linux, "rev-parse", "HEAD") == head


def test_refresh_takes_out(p):
    p.edit("MAINTAINERS", "BB\n", "", "--fixup", p.commit_of("docs"))
    git(p.linux, "rm", "-q", "net/core/try.sh")
    git(p.linux, "commit", "-qm", "gone\n\nTopic: docs")
    p.tool("refresh")
    assert not (p.top / "MAINTAINERS.docs.diff").exists() and not (p.top / "net/core/try.sh").exists()
    assert "new:" not in (p.top / "series/30-docs.md").read_text()


def test_refresh_after_a_rebase_by_hand(p):
    p.edit("net/core/dev.c", "return 1;", "return 11;", "--fixup", p.commit_of("new"))
    env = ["-c", "sequence.editor=true"]
    git(p.linux, *env, "rebase", "-q", "-i", "--autosquash", "--root")
    p.tool("refresh")
    assert "return 11" in (p.top / "net/core/dev.c.new.diff").read_text()


def test_new_topic(p):
    p.put("series/40-later.md", f"# net: later\n\nText.\n\n{SIGNED}\n")
    p.tool("compose")
    p.tool("series", fails="the topic `later` is empty")
    (p.linux / "net/core/later.c").write_text("int later;\n")
    git(p.linux, "add", "-A")
    git(p.linux, "commit", "-q", "--fixup", "HEAD")
    p.tool("refresh")
    assert (p.top / "series/40-later.md").read_text().endswith("\n---\nnew: net/core/later.c\n")
    p.tool("series")


def test_refresh_refuses(p):
    start = git(p.linux, "rev-parse", "HEAD")
    before = p.mirror()

    def refused(fails):
        p.tool("refresh", fails=fails)
        assert p.mirror() == before, "and writes nothing"
        git(p.linux, "checkout", "-q", "-f", "steering")
        git(p.linux, "reset", "-q", "--hard", start)
        git(p.linux, "clean", "-qfd")

    p.edit("net/core/dev.c", "return 1;", "return 11;")
    refused("uncommitted changes")
    (p.linux / "net/core/untracked.c").write_text("")
    refused("uncommitted changes")
    p.edit("net/core/dev.c", "return 1;", "return 11;", "-m", "mine")
    refused(r'\("mine"\) has no topic. End its message with a line `Topic: NAME`')
    p.edit("net/core/dev.c", "return 1;", "return 11;", "-m", "fixup! nothing of ours")
    refused("has no topic")
    p.edit("net/core/dev.c", "return 1;", "return 11;", "-m", "mine\n\nTopic: noise")
    refused("is for the topic `noise`, which series/ doesn't have: write series/NN-noise.md")
    p.edit("net/core/dev.c", "return 1;", "return 11;", "--fixup", p.commit_of("strip-old"))
    refused(r"the strip `strip-old` was edited in build/linux \(net/core/dev.c\)")
    git(p.linux, "checkout", "-q", "-b", "side", "HEAD^")
    git(p.linux, "commit", "-q", "--allow-empty", "-m", "side\n\nTopic: new")
    refused("isn't on its branch")
    git(p.linux, "merge", "-q", "-m", "merged\n\nTopic: new", "side")
    refused("is a merge")
    git(p.linux, "reset", "-q", "--hard", "HEAD^")
    refused("the topic `docs` has no commit")
    git(p.linux, "commit", "-q", "--amend", "-m", "net: say so\n\nText.\n\nTopic: docs")
    refused("the commit of topic `docs` has no Signed-off-by")
    write(p.linux, {"top.c": "int top;\n"})
    git(p.linux, "add", "-A")
    git(p.linux, "commit", "-q", "--fixup", "HEAD")
    refused("brings top.c, for which the mirror has no place")
    p.edit("net/core/new.c", "/* Say so. */", "/* Say it. */", "--fixup", p.commit_of("new"))
    refused("(?s)doesn't fit into topic `new`.*net/core/new.c.*rebase -i --autosquash")
    env = dict(p.env)
    p.env["KSRC"] = str(p.kernel.parent / "other")
    write(p.kernel.parent / "other", {**KERNEL, "Kbuild": ""})
    refused("stands on another base")
    p.env = env
    p.change("net/core/new.c", "int d;", "int dd;")
    before = p.mirror()
    refused("the mirror was changed since it was composed")


def test_edit_inside_a_strip_commit(p):
    git(p.linux, "checkout", "-q", p.commit_of("strip-old"))
    p.edit("include/linux/other.h", "int other;", "long other;", "--amend", "--no-edit")
    git(p.linux, "cherry-pick", "steering~1", "steering")
    git(p.linux, "branch", "-qf", "steering", "HEAD")
    git(p.linux, "checkout", "-q", "steering")
    p.tool("refresh", fails=r"the strip `strip-old` was edited in build/linux \(include/linux/other.h\)")


# ---- series ----

def test_series_by_mail(p):
    said = p.tool("series")
    assert "git am of them on the base's 3 files gives the same blob and mode for all 5 touched files" in said, said
    out = p.top / "build/series"
    assert sorted(f.name for f in out.iterdir()) == ["0000-cover-letter.patch", "0001-net-take-old-out.patch", "0002-net-new.patch",
                                                     "0003-net-say-so.patch"]
    cover = (out / "0000-cover-letter.patch").read_text()
    assert "Subject: [PATCH net-next 0/3] net: new for old" in cover and "All of it." in cover and "***" not in cover
    patches = "".join(f.read_text() for f in out.iterdir())
    assert "Topic:" not in patches and "[PATCH net-next 2/3] net: new\n" in patches and "  # echo 1 > new" in patches
    (out / "0009-stale.patch").write_text("")
    p.tool("series")
    assert not (out / "0009-stale.patch").exists()


def test_series_that_mail_would_break(p):
    p.change("net/core/new.c", "int d;\n", "int d;\r\n")
    p.tool("series", fails="(?s)carriage return|git am refuses")


def test_series_whose_message_mail_would_cut(p):
    p.change("series/20-new.md", "What it does:", "What it does:\n\ndiff --git a b\n")
    p.tool("series", fails="(?s)cuts the message of `net: new`|git am refuses")


def test_no_cover_letter(p):
    (p.top / "series/00-cover.md").unlink()
    p.tool("series", fails="series/00-cover.md, the cover letter")


def main():
    wanted = sys.argv[1:]
    tests = {n[5:]: f for n, f in globals().items() if n.startswith("test_") and (not wanted or n[5:] in wanted)}
    print("TAP version 13")
    print(f"1..{len(tests)}", flush=True)
    failed = False
    with tempfile.TemporaryDirectory() as temp:
        first = pathlib.Path(temp) / "first"
        write(first / "kernel", KERNEL)
        git(first / "kernel", "init", "-q")
        git(first / "kernel", "add", "-A")
        git(first / "kernel", "commit", "-qm", "base")
        write(first / "project", PROJECT)
        (first / "project/net/core/try.sh").chmod(0o755)
        for module in HERE.glob("*.py"):
            shutil.copy(module, first / "project/series")
        Project(first).tool("compose")

        def outcome(name):
            top = pathlib.Path(temp) / name
            shutil.copytree(first, top, symlinks=True)
            try:
                project = Project(top)
                git(project.linux, "status")            # the copies are younger than the index thinks
                tests[name](project)
            except Exception as why:
                lines = [f.lineno for f in traceback.extract_tb(why.__traceback__)]
                return f"{type(why).__name__} by way of lines {lines[1:]}: {why}"

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
            for number, (name, wrong) in enumerate(zip(tests, workers.map(outcome, tests)), 1):
                failed |= bool(wrong)
                print(f"{'not ok' if wrong else 'ok'} {number} series: {name.replace('_', ' ')}")
                print("".join(f"# {line}\n" for line in (wrong or "").splitlines()), end="", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
