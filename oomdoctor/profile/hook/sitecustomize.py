"""Python runs this before the program when `oomdoctor profile` put this folder on PYTHONPATH.

It starts the recording inside the program, takes itself off the path, and runs the
`sitecustomize` that would have been found without it. Whatever goes wrong here must not be seen
by the program.
"""

import os
import sys


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    home = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]
    sys.path.append(home)
    try:
        from oomdoctor.profile.inside import start

        start()
    except Exception:
        if os.environ.get("OOMDOCTOR_DEBUG"):
            raise
    finally:
        sys.path.remove(home)


def _run_the_next() -> None:
    """Run the `sitecustomize` that this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_run_the_next()
