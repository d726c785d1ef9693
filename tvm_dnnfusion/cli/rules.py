"""``tvm-dnnfusion rules``: the table of rewriting rules, from their declarations."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from tvm_dnnfusion.cli import arguments
from tvm_dnnfusion.rewriting.rules import all_rules
from tvm_dnnfusion.rewriting.table import markdown_table, rule_rows

EXAMPLES = """\
examples:
  tvm-dnnfusion rules
  tvm-dnnfusion rules --json | jq '.[] | select(.licence == "exact") | .equation'
"""


def add_parser(commands: Any) -> None:
    """Add this sub-command."""
    parser = commands.add_parser(
        "rules",
        help="list the rewriting rules",
        description="Print every rewriting rule: name, mathematical property, equation, what it may "
        "change of floating-point results, and where it comes from.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    arguments.add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the table."""
    rules = all_rules()
    if args.json:
        print(json.dumps(rule_rows(rules)))
        return
    print(markdown_table(rules))
    counts = Counter(rule.kind.value for rule in rules)
    print(f"\n{len(rules)} rules: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
