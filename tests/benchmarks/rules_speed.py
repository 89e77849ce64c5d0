"""Times the rule engine: loading the catalogue, and running all of it over one set of facts.

Run it with `python tests/benchmarks/rules_speed.py`. The catalogue is also repeated up to
sixty rules, so that the figures can be compared while it grows. Milliseconds are the best of
several runs; the limit that matters is 20 ms for evaluating everything.
"""

import itertools
import subprocess
import sys
import time

from oomdoctor.advise.evaluate import advise
from oomdoctor.advise.load import load_rules, read_rule, rule_files, rules_folder
from oomdoctor.facts import Facts, Footprint, Gpu, Machine, Memory

GIB = 2**30
RULES = 60
REPEATS = 20

FACTS = Facts(
    machine=Machine(
        ram=Memory(total_bytes=16 * GIB, available_bytes=12 * GIB),
        gpus=(Gpu(index=0, name="T4", total_bytes=GIB, free_bytes=GIB),),
        cpu_count=2,
    ),
    footprint=Footprint(
        decoded_bytes=31 * 10**9,
        low_bytes=31 * 10**9,
        high_bytes=31 * 10**9,
        native_bytes=31 * 10**9,
        keras_loader_bytes=None,
        sample_bytes=3 * 2**20,
        largest_sample_bytes=3 * 2**20,
        batch_bytes=96 * 2**20,
        batch_size=32,
        load="memory",
    ),
)


def best_ms(function):
    """Return the least time of several calls, in milliseconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def import_ms():
    """Return what a fresh process spends on importing the engine, over a bare one."""

    def process(code):
        return best_ms(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    return process("import oomdoctor.advise.evaluate, oomdoctor.advise.load") - process("pass")


def read(paths, *, thorough):
    """Read rule files as the catalogue is read, or as a team's own are."""
    return [read_rule(path, thorough=thorough) for path in paths]


def heavy_modules():
    """Return the heavy packages that the engine brings in; there should be none."""
    code = (
        "import sys; from oomdoctor.advise import evaluate, load, page, cases; load.load_rules();"
        "print(*{'tensorflow', 'pandas', 'numpy', 'keras', 'tabulate', 'rich'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return run.stdout.split()


def main():
    """Print the table."""
    rules = load_rules()
    many = tuple(itertools.islice(itertools.cycle(rules), RULES))
    paths = list(itertools.islice(itertools.cycle(rule_files(rules_folder())), RULES))
    rows = [
        (f"load the catalogue ({len(rules)} rules)", best_ms(load_rules)),
        (f"load {RULES} of its rules", best_ms(lambda: read(paths, thorough=False))),
        (f"load {RULES} of a team's rules", best_ms(lambda: read(paths, thorough=True))),
        (f"run the catalogue ({len(rules)} rules)", best_ms(lambda: advise(FACTS, rules))),
        (f"run {RULES} rules", best_ms(lambda: advise(FACTS, many))),
        ("import the engine, in a fresh process", import_ms()),
    ]
    for name, milliseconds in rows:
        print(f"{name:42} {milliseconds:8.2f} ms")
    print(f"{'heavy packages imported':42} {', '.join(heavy_modules()) or 'none':>8}")


if __name__ == "__main__":
    main()
