"""Start-up stays light: heavy packages are loaded only by what needs them."""

import subprocess
import sys

import pytest

import oomdoctor

HEAVY = (
    "tensorflow",
    "keras",
    "libcst",
    "pandas",
    "numpy",
    "pynvml",
    "h5py",
    "pyarrow",
    "PIL",
    "rich",
)


def loaded_by(*args, allow=()):
    """Return the heavy packages in a fresh process that ran the command line with these words."""
    code = (
        "import sys\n"
        f"sys.argv = ['oomdoctor', *{list(args)!r}]\n"
        "from oomdoctor.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "internal error" not in run.stderr
    return set(run.stdout.rpartition("LOADED")[2].split()) - set(allow)


def test_importing_the_package_loads_nothing_heavy():
    code = f"import oomdoctor, sys; print(*[n for n in {HEAVY!r} if n in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


@pytest.mark.parametrize(
    "args", [("--help",), ("check", "--help"), ("probe", "--help"), ("rules",)]
)
def test_help_and_rules_load_nothing_heavy(args):
    assert loaded_by(*args) == set()


def test_probe_loads_nothing_but_nvml():
    assert loaded_by("probe", allow={"pynvml"}) == set()


def test_check_of_pictures_loads_nothing_but_nvml(tmp_path):
    from PIL import Image

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    assert loaded_by("check", str(tmp_path), allow={"pynvml"}) == set()


def test_check_of_arrays_does_not_need_numpy(tmp_path):
    import numpy as np

    np.save(tmp_path / "x.npy", np.zeros((4, 4)))
    assert loaded_by("check", str(tmp_path), "--vram", "1GiB") == set()


def test_public_names_do_not_collide_with_subpackages():
    import pkgutil

    modules = {module.name for module in pkgutil.iter_modules(oomdoctor.__path__)}
    assert not modules & (set(oomdoctor.__all__) - {"__version__"})


def test_every_public_name_resolves():
    assert all(getattr(oomdoctor, name) for name in oomdoctor.__all__)


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        oomdoctor.chekc  # noqa: B018
