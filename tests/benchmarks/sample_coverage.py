"""How often the interval of a sampled scan holds the truth, by simulation.

    python tests/benchmarks/sample_coverage.py [--rounds 400]

Populations of files are made up: images whose elements follow their stored size more or less
closely, of like sizes, of sizes over orders of magnitude, in folders that differ, and with a few
giants. Each is sampled again and again by `inventory.sampling`. Printed: the share of rounds in
which the interval of 95 % holds the true sum, and its half-width as a part of the sum, beside those
of a plain sample.
"""

import argparse
import math
import random
import statistics

from tabulate import tabulate

from oomdoctor.inventory.sampling import GroupSample, StratumRead, interval_of

FILES = 20_000


def population(kind, chance):
    """Return folder, stored bytes and elements of each file."""
    made = []
    for number in range(FILES):
        folder = f"class{number % 10}"
        bytes_per_element = chance.uniform(0.05, 0.25)  # how well a JPEG packs
        if kind == "alike":
            elements = 224 * 224 * 3
        elif kind == "photographs":
            elements = int(chance.choice((640 * 480, 1024 * 768, 4000 * 3000)) * 3)
        elif kind == "over orders of magnitude":
            elements = int(math.exp(chance.gauss(12, 1.5)))
        elif kind == "folders differ":
            elements = int((1 + number % 10) ** 2 * 10_000 * chance.uniform(0.5, 1.5))
        else:  # a few giants among small ones
            elements = 50_000_000 if chance.random() < 0.003 else 30_000
        made.append((folder, max(1, int(elements * bytes_per_element)), elements))
    return made


def stratified(files, size, chance):
    group = GroupSample(size)
    for number, (folder, stored, elements) in enumerate(files):
        group.add(folder, stored, (number, elements))
    read = []
    for stratum, items in group.chosen().items():
        values = [elements for _, elements in items]
        squares = sum(value**2 for value in values)
        seen = group.strata[stratum].seen
        read.append(StratumRead(seen, len(items), len(items), sum(values), squares))
    return interval_of(read), sum(one.read for one in read)


def plain(files, size, chance):
    values = [elements for _, _, elements in chance.sample(files, size)]
    squares = sum(value**2 for value in values)
    return interval_of([StratumRead(len(files), size, size, sum(values), squares)]), size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--sizes", type=int, nargs="*", default=[50, 200, 1000])
    given = parser.parse_args()
    rows = []
    kinds = ("alike", "photographs", "over orders of magnitude", "folders differ", "few giants")
    for kind in kinds:
        files = population(kind, random.Random(1))
        truth = sum(elements for _, _, elements in files)
        for size in given.sizes:
            row = [kind, size]
            for method in (plain, stratified):
                chance = random.Random(2)
                held, widths, reads = 0, [], []
                for _ in range(given.rounds):
                    chance.shuffle(files)
                    (total, margin), read = method(files, size, chance)
                    held += abs(total - truth) <= margin + 1e-6 * truth
                    widths.append(margin / truth)
                    reads.append(read)
                row += [f"{held / given.rounds:.1%}", f"{statistics.median(widths):.1%}"]
            rows.append([*row, max(reads)])
    headers = (
        "files",
        "asked",
        "plain: holds",
        "half-width",
        "strata: holds",
        "half-width",
        "read",
    )
    print(f"{FILES:,} files, {given.rounds} rounds each, nominal 95 %")
    print(tabulate(rows, headers=headers))


if __name__ == "__main__":
    main()
