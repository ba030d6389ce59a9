"""``python -m fuzz``: run campaigns for some time and print what was found."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from fuzz.campaigns import CAMPAIGNS
from fuzz.runner import GOOD, Tally, run_campaign


def main() -> int:
    """Run the campaigns; exit code 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for all campaigns together")
    parser.add_argument("--cases", type=int, help="of each campaign, at the most")
    parser.add_argument("--campaign", action="append", choices=[each().name for each in CAMPAIGNS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(__file__).parent / "findings")
    arguments = parser.parse_args()
    chosen = [each() for each in CAMPAIGNS if not arguments.campaign or each().name in arguments.campaign]
    found = 0
    for campaign in chosen:
        with tempfile.TemporaryDirectory() as folder:
            seconds = arguments.seconds / len(chosen)
            tally = run_campaign(campaign, Path(folder), seed=arguments.seed, seconds=seconds, most=arguments.cases)
            _report(campaign.name, tally, Path(folder), arguments.keep)
            found += len(tally.findings)
    print(f"{found} findings")
    return int(found > 0)


def _report(name: str, tally: Tally, folder: Path, keep: Path) -> None:
    shown = ", ".join(f"{tally.counts[kind]} {kind}" for kind in [*GOOD, *sorted(set(tally.counts) - set(GOOD))])
    print(f"{name}: {tally.counts.total()} cases, {shown}; slowest {tally.slowest:.1f} s", flush=True)
    kinds: dict[str, int] = {}
    for finding in tally.findings:
        last = finding.detail.strip().splitlines()[-1] if finding.detail.strip() else ""
        key = f"{finding.kind}: {last[:160]}"
        kinds[key] = kinds.get(key, 0) + 1
        place = keep / f"{name}-{finding.seed}-{finding.number}"
        shutil.copytree(folder / f"case-{finding.number}", place, dirs_exist_ok=True)
        (place / "finding.txt").write_text(f"{finding.kind}\n{finding.detail}\n")
    for key, count in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"  {count} x {key}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
