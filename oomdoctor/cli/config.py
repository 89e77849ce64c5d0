"""`[tool.oomdoctor]` in `pyproject.toml`, or `oomdoctor.toml`: defaults for options.

The nearest file at or above the current folder is used, up to the root of the repository or the
home folder. Flags win. A key that no option has is an error that names the nearest one.

A configuration comes with a checkout, so it may be a stranger's. It cannot make a command write,
its paths stay below its folder, and one that belongs to another user is not used, as with git.
`--config FILE` names a file that is trusted: whoever owns it, and with paths outside its folder.
"""

from __future__ import annotations

import difflib
import importlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import click

from oomdoctor._files import read_small
from oomdoctor._toml import read_toml
from oomdoctor.cli.options import CommandLineOption
from oomdoctor.cli.output import tell
from oomdoctor.errors import OomDoctorError, UsageError

NAMES = ("oomdoctor.toml", "pyproject.toml")
MAX_BYTES = 256 * 1024

PATHS = frozenset(("rules", "baseline"))
"""Options that name files: they are relative to the configuration, not to the current folder."""

SECTIONS = ("models", "datasets", "scripts")
"""What `check` without a path examines; see `plan`."""

_IN_USE = "oomdoctor.config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a file says for oomdoctor."""

    path: Path
    settings: dict[str, Any]
    is_trusted: bool = False
    """Whether a person named it with `--config`."""

    def inside(self, name: str, key: str) -> str:
        """Return a path that the file names, relative to it, or raise where it leads elsewhere."""
        folder = self.path.parent
        try:
            is_inside = (folder / name).resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError, ValueError):  # a loop of links, or a name none can have
            is_inside = False
        if self.is_trusted or is_inside:
            return str(folder / name)
        raise UsageError(
            f"{self.path}: {key} = {name!r} leads out of {folder}: give it on the command line, "
            "or name the file with --config if you trust it."
        )


class ConfiguredCommand(click.Command):
    """A command whose options take their defaults from the configuration."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params.append(
            CommandLineOption(
                ["--config"],
                metavar="FILE",
                is_eager=True,  # before the options whose defaults it gives
                expose_value=False,
                callback=_configure,
                help="Settings to use instead of the nearest file's.",
            )
        )

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Say where a wrong value may come from."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.BadParameter as error:
            config = None if error.ctx is None else error.ctx.meta.get(_IN_USE)
            if config is None:
                raise
            message = f"{error.message} (What is not given as a flag comes from {config.path}.)"
            raise click.BadParameter(message, error.ctx, error.param) from error


def _configure(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Make a configuration the source of defaults, and say which."""
    if ctx.resilient_parsing:
        return
    config = find_here() if value is None else read_config(Path(value), is_trusted=True)
    if config is None:
        if value is not None:
            raise UsageError(f"{value} has no table [tool.oomdoctor].")
        return
    ctx.meta[_IN_USE] = config
    ctx.default_map = defaults_for(ctx.command, config)
    tell(f"oomdoctor: using the settings in {config.path}.")


def in_use() -> Config | None:
    """Return the configuration of the command that runs; None where it has none."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_IN_USE)


def find_here() -> Config | None:
    """Return the nearest configuration at or above the current folder."""
    try:
        return find_config(Path.cwd())
    except FileNotFoundError:  # the current folder was deleted
        return None


def find_config(folder: Path) -> Config | None:
    """Return the nearest configuration at or above a folder, as far as one may be looked for."""
    for place in _places(folder):
        for name in NAMES:
            path = place / name
            if not os.path.lexists(path):
                continue
            if not _is_own(path):
                tell(
                    f"oomdoctor: {path} belongs to another user and is not used: name it with "
                    "--config if you trust it."
                )
                continue
            config = read_config(path)
            if config is not None:
                return config
    return None


def _places(folder: Path) -> Iterator[Path]:
    """Yield a folder and those above it, up to the repository's root or the home folder."""
    try:
        home = Path.home().resolve()
    except (OSError, RuntimeError):
        home = None
    for place in (folder, *folder.parents):
        yield place
        if place == home or os.path.exists(place / ".git"):
            return


def _is_own(path: Path) -> bool:
    """Return whether a file, and the link to it, belong to this user or to root.

    Root trusts who it was before `sudo` as well.
    """
    if not hasattr(os, "geteuid"):
        return True
    owners = {0, os.geteuid()}
    sudo = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and sudo.isascii() and sudo.isdigit():
        owners.add(int(sudo))
    try:
        return {os.lstat(path).st_uid, os.stat(path).st_uid} <= owners
    except OSError:
        return True  # a link that leads nowhere; reading it says so


def read_config(path: Path, *, is_trusted: bool = False) -> Config | None:
    """Return what a file says for oomdoctor; None for a `pyproject.toml` that does not.

    Raises:
        UsageError: It cannot be read, or is not TOML.
    """
    try:
        if not is_trusted and stat.S_ISLNK(os.lstat(path).st_mode):
            target = path.resolve()
            if not target.is_relative_to(path.parent.resolve()):
                raise UsageError(f"{path} is a link that leads out of {path.parent}.")
        content = read_small(path, most=MAX_BYTES)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read ({reason}).") from error
    is_project = path.name == "pyproject.toml"
    if is_project and b"oomdoctor" not in content:
        return None  # whatever else is wrong with it
    try:
        settings: Any = read_toml(content.decode("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    if is_project:
        tool = settings.get("tool", {})
        settings = tool.get("oomdoctor") if isinstance(tool, dict) else None
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: tool.oomdoctor is not a table.")
    return Config(path=path, settings=settings, is_trusted=is_trusted)


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by what is written after the dashes."""
    params = [param for param in command.params if isinstance(param, click.Option)]
    return {name[2:]: param for param in params for name in param.opts if name[:2] == "--"}


@cache
def _options_of_all_commands() -> dict[str, click.Option]:
    from oomdoctor.cli import COMMANDS

    commands = [importlib.import_module(f"oomdoctor.cli.{name}").command for name in COMMANDS]
    return {name: option for command in commands for name, option in _options(command).items()}


def defaults_for(command: click.Command, config: Config) -> dict[str, Any]:
    """Return the settings by parameter name, after checking every key."""
    options = _options(command)
    defaults: dict[str, Any] = {}
    for key, value in config.settings.items():
        if key in SECTIONS:
            continue
        name = key.replace("_", "-")
        option = options.get(name) or _options_of_all_commands().get(name)
        if option is None:
            raise UsageError(unknown_key(config.path, key, (*options, *SECTIONS)))
        if isinstance(option, CommandLineOption):
            raise UsageError(
                f"{config.path}: {key} cannot be set in a configuration, which may come with "
                f"somebody else's files: give --{name} on the command line."
            )
        if name in options and option.name is not None:
            defaults[option.name] = _default(config, key, option, value)
    return {name: value for name, value in defaults.items() if value is not None}


def _default(config: Config, key: str, option: click.Option, value: Any) -> Any:
    """Return a value as if it had been written as a flag; None where it cannot be one."""
    if option.name == "severities" and isinstance(value, dict):
        if not all(isinstance(level, str) for level in value.values()):
            raise UsageError(f'{config.path}: {key} has levels, such as OD101 = "warning".')
        value = [f"{rule}={level}" for rule, level in value.items()]
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(item, (str, int, float)) for item in several):
        raise UsageError(f"{config.path}: {key} is neither a word, a number nor a list of those.")
    words = [item if isinstance(item, bool) else str(item) for item in several]
    if option.name in PATHS:
        words = [config.inside(str(word), key) for word in words]
    if option.multiple:
        return words
    if option.name == "machine" and len(words) != 1:
        return None  # which of them is meant here is not known
    if isinstance(value, list) and len(words) != 1:
        raise UsageError(f"{config.path}: {key} is a single value, not a list.")
    return words[0]


def unknown_key(path: Path, key: str, known: Iterable[str], section: str = "oomdoctor") -> str:
    """Return the sentence for a key that nothing has, with the nearest one that there is."""
    near = difflib.get_close_matches(key.replace("_", "-")[:100], list(known), n=1)
    hint = f" Did you mean {near[0]}?" if near else f" Known keys: {', '.join(known)}."
    return f"{path} has an unknown key {key!r:.100} for {section}.{hint}"


def quietly_found() -> Path | None:
    """Return where the configuration is, for a command that does not depend on it."""
    try:
        config = in_use() or find_here()
    except OomDoctorError:
        return None
    return None if config is None else config.path
