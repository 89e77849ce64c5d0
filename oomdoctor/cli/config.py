"""`[tool.oomdoctor]` in `pyproject.toml`, or `oomdoctor.toml`: defaults for options.

The nearest file at or above the current folder is used. Flags win. A key that no option has is
an error that names the nearest one.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from oomdoctor.errors import UsageError

PATHS = frozenset(("rules", "baseline"))
"""Options that name files: they are relative to the configuration, not to the current folder."""

SECTIONS = ("models", "datasets", "scripts")
"""What `check` without a path examines; see `plan`."""


class ConfiguredCommand(click.Command):
    """A command whose options take their defaults from the configuration."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the configuration before the flags are parsed, so that flags win."""
        found = find_here()
        if found is None or {"-h", "--help"} & set(args):
            return super().make_context(info_name, args, parent, **extra)
        extra["default_map"] = defaults_for(self, *found)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.BadParameter as error:
            message = f"{error.message} (What is not given as a flag comes from {found[0]}.)"
            raise click.BadParameter(message, error.ctx, error.param) from error


def find_here() -> tuple[Path, dict[str, Any]] | None:
    """Return the nearest configuration at or above the current folder, and where it stands."""
    try:
        return find_config(Path.cwd())
    except FileNotFoundError:  # the current folder was deleted
        return None


def find_config(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """Return the nearest configuration at or above a folder, and where it stands."""
    for place in (folder, *folder.parents):
        for name in ("oomdoctor.toml", "pyproject.toml"):
            path = place / name
            if not path.is_file():
                continue
            settings = _read(path)
            if name == "pyproject.toml":
                settings = settings.get("tool", {}).get("oomdoctor")
            if settings is not None:
                return path, settings
    return None


def _read(path: Path) -> dict[str, Any]:
    # Python 3.10 has no TOML reader of its own.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        settings: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except (toml.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).") from error
    return settings


def _keys_of_all_commands() -> set[str]:
    from oomdoctor.cli import COMMANDS

    commands = [importlib.import_module(f"oomdoctor.cli.{name}").command for name in COMMANDS]
    names = [opt for command in commands for param in command.params for opt in param.opts]
    return {name[2:] for name in names if name.startswith("--")}


def defaults_for(command: click.Command, path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings by parameter name, after checking every key."""
    params = [param for param in command.params if isinstance(param, click.Option)]
    options = {name[2:]: param for param in params for name in param.opts if name[:2] == "--"}
    defaults: dict[str, Any] = {}
    for key, value in settings.items():
        option = options.get(key.replace("_", "-"))
        if option is None or option.name is None:
            if key in SECTIONS or key.replace("_", "-") in _keys_of_all_commands():
                continue  # meant for another command
            raise UsageError(unknown_key(path, key, (*options, *SECTIONS)))
        if option.name == "severities" and isinstance(value, dict):
            value = [f"{rule}={level}" for rule, level in value.items()]
        if option.multiple:
            value = [value] if isinstance(value, str) else value
        elif option.name == "machine" and isinstance(value, list):
            if len(value) != 1:
                continue  # which of them is meant here is not known
            value = value[0]
        if option.name in PATHS:
            value = _beside(path, value)
        defaults[option.name] = value
    return defaults


def unknown_key(path: Path, key: str, known: Iterable[str], section: str = "oomdoctor") -> str:
    """Return the sentence for a key that nothing has, with the nearest one that there is."""
    near = difflib.get_close_matches(key.replace("_", "-"), list(known), n=1)
    hint = f" Did you mean {near[0]}?" if near else f" Known keys: {', '.join(known)}."
    return f"{path} has an unknown key {key!r} for {section}.{hint}"


def _beside(path: Path, value: Any) -> Any:
    if isinstance(value, str):
        return str(path.parent / value)
    return [str(path.parent / item) for item in value]
