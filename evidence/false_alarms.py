"""How often compare_results.py is wrong: rows compared with themselves, and with themselves slowed down.

    python3 benchmark.py --rows "torch memcpy" "torch multiprocessing" "torch gloo" \\
        --batch-size 256 --iterations 20 --runs 20 --output-dir results/evidence/alike
    python3 -m evidence.false_alarms results/evidence/alike        also says which delay is 5 % of which row
    python3 benchmark.py --rows "torch mapped --copy-out" "torch mapped --copy-out" \\
        "torch mapped --copy-out --inject policy:1:delay=0.5ms" --alternate \\
        --payload 128MiB --iterations 240 --runs 50 --output-dir results/evidence/alternating
    python3 -m evidence.false_alarms results/evidence/alike results/evidence/alternating

The runs of each row of a folder are cut into pairs of --runs each, old and new, which the code of compare_results.py
judges: `in turns`, every other run is new; `one after the other`; `at random`, again and again, so that pairs share
runs. A delayed row is judged against the one of its folder that is not, measured in turns with it; rows that
alternated, against the first of them, trip by trip too.
"""

import argparse
import sys
from pathlib import Path

from common.analysis.false_alarms import DELAY, PAIRED, SHUFFLES, delays, judged
from common.analysis.statistics import MINIMUM_RUNS
from common.errors import SuiteError
from common.plan.command_line import OneLineParser
from common.plan.kinds import at_least
from common.text.false_alarms import COLUMNS, summary
from common.text.screen import print_table
from common.text.tables import markdown_table


def main(argv: list[str] | None = None) -> int:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="of records of benchmark.py")
    usual = "(default: %(default)s)"
    parser.add_argument("--runs", type=at_least(MINIMUM_RUNS), nargs="+", default=PAIRED,
                        help=f"of each side of a pair {usual}")  # fmt: skip
    parser.add_argument(
        "--shuffles", type=at_least(1), default=SHUFFLES, help=f"how often runs are paired at random {usual}"
    )
    parser.add_argument("--seed", type=int, default=0, help=f"of these pairs {usual}")
    parser.add_argument("--markdown", action="store_true", help="the table in Markdown")
    try:
        arguments = parser.parse_all(argv)
        how = (arguments.runs, arguments.shuffles, arguments.seed)
        found = [one for folder in arguments.folders for one in judged(folder, *how)]
    except SuiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown_table(found, COLUMNS)) if arguments.markdown else print_table(found, COLUMNS)
    print("\n".join(["", *summary(found)]))
    if not any(one.row.injected for one in found):
        print(f"The same rows with {DELAY:.0%} planted, as --rows of benchmark.py:", *delays(found), sep="\n    ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
