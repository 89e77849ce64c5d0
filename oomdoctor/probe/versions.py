"""Installed TensorFlow and Keras, from their metadata; nothing is imported."""

from __future__ import annotations

DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly"),
    "keras": ("keras",),
}


def installed_versions() -> tuple[tuple[str, str], ...]:
    """Return pairs of package and version for those that are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package, distributions in DISTRIBUTIONS.items():
        for distribution in distributions:
            try:
                found.append((package, version(distribution)))
                break
            except PackageNotFoundError:
                continue
    return tuple(found)
