# SPDX-License-Identifier: GPL-2.0
"""Taking the base's own code out: guard diffs, then unifdef, then a look back.

A strip's guard diffs move preprocessor lines only, so that what has to stay
leaves the #ifdef; unifdef does the removing. What it removed is recorded by
top-level thing (function, struct, variable), so that a base in which one of
them was changed says so, and a fix made upstream is looked at, not lost.
"""
import hashlib
import itertools
import re

from run import Stop, run, say, text


def check_guard(path, before, after):
    """A guard diff leaves every line as it was that isn't a directive or the rest of one."""
    before, after = (code(text(data).split("\n")) for data in (before, after))
    if before != after:
        pairs = itertools.zip_longest(before, after, fillvalue="(end)")
        differ = next(pair for pair in pairs if pair[0] != pair[1])
        raise Stop(f"{path}: a strip's diff may change preprocessor lines only, and this one makes of\n"
                   f"    {differ[0]}\nthis\n    {differ[1]}\n"
                   "Leave it to unifdef, or move the edit to another topic.")


def code(lines):
    """The lines that are no preprocessor directive and continue none."""
    kept, directive = [], False
    for line in lines:
        directive = directive or bool(re.match(r"\s*#", line))
        if not directive:
            kept.append(line)
        directive = directive and line.endswith("\\")
    return kept


def symbols(flags):
    return [re.sub(r"^-[UD]|=.*", "", flag) for flag in flags]


def unifdef(flags, path, data):
    """(what stays, the record of what went)."""
    # No -k: it would take every `#if 0` of the file along.
    stays = run(["unifdef", *flags], stdin=data, ok=(0, 1))
    blanked = run(["unifdef", "-b", *flags], stdin=data, ok=(0, 1))     # keeps the line numbers
    if stays.returncode == 0:
        say(f"note: unifdef finds nothing to take out of {path}")
    return stays.stdout, record(path, text(data).split("\n"), text(blanked.stdout).split("\n"))


def record(path, lines, blanked):
    """["sha1 path name"] for each top-level thing that lost lines."""
    went = {}
    start = 0
    for end in ends(lines):
        gone = [line.rstrip() for line, kept in zip(lines[start:end], blanked[start:end])
                if line != kept and not re.match(r"\s*#", line)]
        if gone:
            went.setdefault(name(lines[start:end]), []).extend(gone)
        start = end
    return [f"{short_sum(gone)} {path} {what}" for what, gone in went.items()]


def short_sum(lines):
    return hashlib.sha1("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def ends(lines):
    """Where top-level things end: after a } in column 0, or after a ; outside of a body.

    So comments and directives belong to what follows them. Lines are enough:
    kernel style puts the closing brace of a body in column 0, and no other.
    """
    body = comment = directive = False
    for number, line in enumerate(lines, 1):
        if directive or re.match(r"\s*#", line):
            directive = line.endswith("\\")
            continue
        if comment:
            comment = "*/" not in line
            continue
        if re.match(r"\s*/\*", line):
            comment = "*/" not in line
            continue
        code = re.sub(r"\s*(/\*.*|//.*)$", "", line)
        if not body and code.endswith("{"):
            body = True
        if code.startswith("}") or (not body and code.endswith(";")):
            body = False
            yield number
    yield len(lines)


def name(lines):
    """What a top-level thing is called."""
    code = re.sub(r"/\*.*?\*/", " ", "\n".join(lines), flags=re.S).replace("\\\n", " ")
    code = " ".join(line for line in code.split("\n") if not re.match(r"\s*#", line))
    # EXPORT_SYMBOL(x), static DEFINE_MUTEX(x)
    macro = re.match(r"\s*(?:static )?[A-Z][A-Z0-9_]*\((?:struct )?(\w+)", code)
    if macro:
        return macro[1]
    head = re.split(r"[{;=]", re.sub(r"\[.*?\]", "", code))[0]
    function = re.search(r"(\w+)\s*\(", head)
    words = [w for w in re.findall(r"\w+", head) if not w.startswith("__")]     # __rcu, __read_mostly
    return function[1] if function else words[-1] if words else "(end of file)"


def leftovers(repo, tree, topic):
    """Stop if what was stripped is still named, under net/, include/ or in the stripped files."""
    names = [word for symbol in symbols(topic.keys["unifdef"]) for word in ("-e", symbol)]
    found = repo("grep", "-nwF", *names, tree, "--", "net", "include", *topic.keys["over"], ok=(0, 1))
    allowed = [a.split(None, 1) for a in topic.keys["allow"]]
    used, bad = set(), []
    for line in found.splitlines():
        path, number, code = line[len(tree) + 1:].split(":", 2)
        why = [i for i, (where, *what) in enumerate(allowed)
               if where == path and (not what or what[0] in code)]
        used.update(why)
        if not why:
            bad.append(f"    {path}:{number}: {code.strip()}")
    if bad:
        raise Stop(f"{topic.name}: still named after the strip:\n" + "\n".join(bad) +
                   f"\nTake it out (`over:` in {topic.path}, or a guard diff FILE.{topic.name}.diff), "
                   "or let it stay (`allow: PATH TEXT` there).")
    for i, allow in enumerate(topic.keys["allow"]):
        if i not in used:
            say(f"note: {topic.path}: `allow: {allow}` isn't needed on this base")


def compare(topic, recorded, now, pinned):
    """Hold what was removed against the record; a newer base may differ, the pinned one can't."""
    def by_name(lines):
        return {tuple(line.split()[1:3]): line.split()[0] for line in lines if not line.startswith("#")}
    old, new = by_name(recorded), by_name(now)
    differ = [("new" if key not in old else "gone" if key not in new else "changed", *key)
              for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    if differ and pinned:
        raise Stop(f"{topic.name}: what was removed isn't what series/{topic.name}.removed says:\n" +
                   "\n".join(f"    {path}: {what} ({how})" for how, path, what in differ) +
                   "\nIf that is meant, write the record anew: series/series.py compose --record")
    for how, path, what in differ:
        say(f"{how} upstream since: {path}: {what}; {topic.name} takes it out: look whether that concerns ours")
