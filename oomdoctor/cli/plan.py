"""What a configuration names to be checked, read and validated.

    [tool.oomdoctor]
    machine = ["colab-t4", "rtx3060-laptop"]
    scripts = ["src"]

    [[tool.oomdoctor.models]]
    model = "mypackage.models:build"
    batch-size = [32, 64]

    [[tool.oomdoctor.datasets]]
    path = "data"
    load = "stream"

Paths are relative to the file, and modules are looked for beside it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from oomdoctor.api.gate import DataPlan, ModelPlan
from oomdoctor.api.model import jit_of
from oomdoctor.cli.config import SECTIONS, Config, unknown_key
from oomdoctor.errors import OomDoctorError, UsageError
from oomdoctor.units import dtype_bytes, parse_image_size, parse_input_size

Section = Mapping[str, Any]


def read_plan(config: Config, *, defaults: Section) -> dict[str, tuple[Any, ...]]:
    """Return the models, datasets and scripts that a configuration names.

    Args:
        config: The file, and what it says for oomdoctor.
        defaults: How data is fed where its entry does not say.
    """
    path, settings = config.path, config.settings
    scripts = settings.get("scripts", ())
    if not _is_words(scripts):
        raise UsageError(f"{path}: scripts is a list of paths, such as ['src'].")
    return {
        "models": tuple(
            _model(config, entry, defaults) for entry in _entries(path, settings, "models", "model")
        ),
        "datasets": tuple(
            _dataset(config, entry, defaults)
            for entry in _entries(path, settings, "datasets", "path")
        ),
        "scripts": tuple(
            DataPlan(name=name, paths=(_near(config.inside(name, "scripts")),))
            for name in _words(scripts)
        ),
    }


def names_something(settings: Section) -> bool:
    """Return whether there is anything to check."""
    return any(settings.get(section) for section in SECTIONS)


def _entries(path: Path, settings: Section, section: str, main: str) -> list[Section]:
    """Return the tables of a section; a word alone stands for a table with that word."""
    value = settings.get(section, [])
    entries = [value] if isinstance(value, (str, dict)) else value
    if not isinstance(entries, list) or not all(isinstance(e, (str, dict)) for e in entries):
        raise UsageError(f"{path}: {section} is a list of tables, each with {main}.")
    return [{main: entry} if isinstance(entry, str) else entry for entry in entries]


class _Reader:
    """Takes the keys of one table, one by one, and refuses what is left."""

    def __init__(self, path: Path, section: str, entry: Section) -> None:
        self.path, self.section = path, section
        self.entry = {key.replace("_", "-"): value for key, value in entry.items()}
        self.asked: list[str] = []

    def take(self, key: str, parse: Callable[[Any], Any]) -> Any:
        """Return the parsed value of a key; None where it is not there."""
        self.asked.append(key)
        if key not in self.entry:
            return None
        try:
            return parse(self.entry[key])
        except (OomDoctorError, TypeError, ValueError) as error:
            raise UsageError(f"{self.path}: {key} in {self.section}: {error}") from None

    def need(self, key: str, parse: Callable[[Any], Any]) -> Any:
        """Return the parsed value of a key that must be there."""
        value = self.take(key, parse)
        if not value:
            raise UsageError(f"{self.path}: an entry of {self.section} has no {key}.")
        return value

    def close(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.entry:
            if key not in self.asked:
                raise UsageError(unknown_key(self.path, key, self.asked, self.section))


def _model(config: Config, entry: Section, defaults: Section) -> ModelPlan:
    reader = _Reader(config.path, "models", entry)
    model = reader.need("model", _text)
    sizes = reader.take("batch-size", _counts)
    kind = reader.take("kind", _one_of("train", "evaluate", "predict"))
    jit = reader.take("jit", jit_of)
    how_trained = {
        "input_shape": reader.take("input-size", parse_input_size),
        "optimizer": reader.take("optimizer", _text),
        "loss": reader.take("loss", _text),
        "precision": reader.take("precision", _text),
    }
    reader.close()
    return ModelPlan(
        model=model if not model.endswith(".keras") else config.inside(model, "model"),
        batch_sizes=sizes or (defaults["batch_size"],),
        kind=kind or "train",
        jit=jit or "auto",
        how_trained=_given(how_trained),
        folder=str(config.path.parent),
        name=model,
    )


def _dataset(config: Config, entry: Section, defaults: Section) -> DataPlan:
    reader = _Reader(config.path, "datasets", entry)
    paths = reader.need("path", _words)
    how_fed = {
        "image_size": reader.take("image-size", parse_image_size),
        "dtype": reader.take("dtype", _dtype),
        "batch_size": reader.take("batch-size", _count),
        "replicas": reader.take("replicas", _count),
        "load": reader.take("load", _one_of("auto", "memory", "stream")),
        "sample": reader.take("sample", _count),
    }
    reader.close()
    return DataPlan(
        name=", ".join(paths),
        paths=tuple(_near(config.inside(item, "path")) for item in paths),
        how_fed={**defaults, **_given(how_fed)},
    )


def _near(path: str) -> str:
    """Return a path as a person in the current folder writes it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{value!r} is not text.")
    return value


def _is_words(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, Iterable) and all(isinstance(word, str) for word in value)


def _words(value: Any) -> tuple[str, ...]:
    if not _is_words(value):
        raise UsageError(f"{value!r} is not a path or a list of paths.")
    return (value,) if isinstance(value, str) else tuple(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{value!r} is not a whole number from 1 on.")
    return value


def _counts(value: Any) -> tuple[int, ...]:
    return tuple(_count(item) for item in (value if isinstance(value, list) else [value]))


def _dtype(value: Any) -> str:
    dtype_bytes(_text(value))
    return str(value)


def _one_of(*words: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in words:
            raise UsageError(f"{value!r} is not one of {', '.join(words)}.")
        return str(value)

    return parse
