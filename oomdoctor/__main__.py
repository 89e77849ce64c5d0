"""`python -m oomdoctor`."""

import sys

if __name__ == "__main__":
    # Python puts the current folder first, where a stranger's `json.py` may be.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    from oomdoctor.cli import main

    main()
