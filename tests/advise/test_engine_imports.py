import subprocess
import sys

HEAVY = {"tensorflow", "keras", "pandas", "numpy", "PIL", "psutil", "pynvml", "rich", "tabulate"}


def test_loading_and_running_every_rule_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from oomdoctor.advise import evaluate, load, page\n"
        "from oomdoctor.facts import Facts\n"
        "rules = load.load_rules(with_cases=True)\n"
        "evaluate.advise(Facts(), rules)\n"
        "page.render_index(rules)\n"
        "print(*sys.modules)"
    )

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert HEAVY & set(run.stdout.split()) == set()
