#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Turn a base kernel into ours, and what was edited there back into this project.

usage: series/series.py VERB

  base           fetch the base kernel if need be; print where it is
  compose        build/linux: the base and one commit a topic
                 (--record: write down anew what the strips remove)
  refresh        take the commits made in build/linux back into the mirror
  series         patches for mailing in build/series, proved with git am
  checkpatch     checkpatch --strict on them
  series-check   compile each commit, SMP and UP, W=1 C=1 (--no-link: no vmlinux)

KSRC=DIR in the environment stands on a kernel tree at hand.
"""
import sys

sys.dont_write_bytecode = True

import base         # noqa: E402
import check        # noqa: E402
import compose      # noqa: E402
import export       # noqa: E402
import refresh      # noqa: E402
from run import BUILD, Stop, at_work, locked        # noqa: E402


def main(argv):
    verb, options = (argv + [""])[0], argv[1:]
    known = {"base": [], "compose": ["--record"], "refresh": [], "series": [], "checkpatch": [],
             "series-check": ["--no-link"]}
    if verb not in known or set(options) - set(known[verb]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        act(verb, options)
    except Stop as why:
        print(f"{verb}: {why}", file=sys.stderr)
        return 1
    except OSError as why:          # a full disk, a file without permission
        print(f"{verb}: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def act(verb, options):
    if verb == "series-check":      # long, so it holds others up only where it has to
        with locked(BUILD / "check.lock", "checking the series"):
            check.series_check(link="--no-link" not in options)
        return
    with at_work():
        if verb == "base":
            print(base.find().source)
        elif verb == "compose":
            compose.compose(record="--record" in options)
        elif verb == "refresh":
            refresh.refresh()
        elif verb == "series":
            export.series()
        else:
            export.checkpatch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
