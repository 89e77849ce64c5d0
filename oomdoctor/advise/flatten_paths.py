"""Where the data lies, as code that reads it has to name it.

A *folder* holds one folder per class and is what Keras's loaders are given: the folder of the
training split where there is one. A *file* may be a pattern that matches many. An archive is
unpacked first, so its folder is one that will be there then. Nothing here looks at the disk.
"""

from __future__ import annotations

import posixpath

from oomdoctor.facts import FileGroup, Inventory

UNPACKED = "extracted"
"""The folder that code unpacks an archive into."""

_ARCHIVES = ("zip", "tar")
_KEYED = ("hdf5", "npz", "zarr")
_LIVE = ("array", "memmap", "frame", "dataset")
_SPLIT_WORDS = {
    "train": ("train", "training", "trn"),
    "validation": ("val", "valid", "validation", "dev"),
}


def path_values(
    inventory: Inventory | None, main: FileGroup | None
) -> dict[str, int | float | str | bool | None]:
    """Return the facts about paths and names.

    Args:
        inventory: What there is.
        main: The group that is trained on; the others are judged by it.
    """
    if inventory is None or main is None:
        return dict.fromkeys(_NAMES)
    alike = [group for group in inventory.groups if group.kind == main.kind]
    targets = next(
        (
            group
            for group in inventory.groups
            if group.role == "targets" and group.split == main.split and _same_file(group, main)
        ),
        None,
    )
    validation = next((group for group in alike if group.split == "validation"), None)
    file_path = _file_path(inventory, main, alike)
    is_pattern = "*" in (file_path or "")
    shapes = main.shapes if main.kind == "image" else None
    channels = shapes.most_common[2] if shapes and len(shapes.most_common) == 3 else None
    return {
        "data.train_path": _folder(inventory, main),
        "data.validation_path": _folder(inventory, validation)
        if validation and validation is not main and main.format not in _ARCHIVES
        else None,
        "data.file_path": file_path,
        "data.archive_path": file_path if main.format in _ARCHIVES else None,
        "data.array_path": file_path if main.format == "npy" and not is_pattern else None,
        "data.labels_path": _join(inventory, targets.name)
        if targets and targets.format == "npy" and targets.name.endswith(".npy")
        else None,
        "data.input_key": _key(main),
        "data.label_key": _key(targets) if targets else None,
        "data.color_mode": {1: "grayscale", 4: "rgba"}.get(channels or 3),
        "data.is_flat": _is_flat(main),
        "data.is_one_file": _is_the_root(inventory, main),
        "data.is_pattern": is_pattern,
        "data.is_gzip": (file_path or "").lower().endswith(".gz"),
    }


_NAMES = (
    "data.train_path",
    "data.validation_path",
    "data.file_path",
    "data.archive_path",
    "data.array_path",
    "data.labels_path",
    "data.input_key",
    "data.label_key",
    "data.color_mode",
    "data.is_flat",
    "data.is_one_file",
    "data.is_pattern",
    "data.is_gzip",
)


def _bare(group: FileGroup) -> str:
    """The group's file, without the name of an array inside it."""
    return group.name.rpartition(":")[0] or group.name if group.format in _KEYED else group.name


def _key(group: FileGroup) -> str | None:
    return group.name.rpartition(":")[2] if group.format in _KEYED and ":" in group.name else None


def _same_file(group: FileGroup, main: FileGroup) -> bool:
    return main.format not in _KEYED or _bare(group) == _bare(main)


def _is_the_root(inventory: Inventory, group: FileGroup) -> bool:
    bare = _bare(group)
    return bare != "." and posixpath.basename(inventory.root.rstrip("/")) == bare


def _join(inventory: Inventory, name: str) -> str:
    root = inventory.root.rstrip("/") or "/"
    if name in ("", ".") or posixpath.basename(root) == name:
        return root
    return posixpath.join(root, name)


def _file_path(inventory: Inventory, main: FileGroup, alike: list[FileGroup]) -> str | None:
    """The file of a group, or a pattern that matches the files of all groups like it."""
    if main.format in _LIVE:
        return None
    if main.format == "tfds":
        return f"{inventory.root.rstrip('/')}/**/*{main.split or ''}*.tfrecord*"
    bare = _bare(main)
    if main.format == "npy" and not bare.endswith(".npy"):
        return _join(inventory, posixpath.join(bare, "**", "*.npy"))
    beside = {
        _bare(group)
        for group in alike
        if group.format == main.format and group.split == main.split and group.role == main.role
    }
    if len(beside) == 1 or main.format in (*_KEYED, "npy"):
        return _join(inventory, bare)
    folders = {posixpath.dirname(name) for name in beside}
    endings = {posixpath.splitext(name)[1] for name in beside}
    folder = folders.pop() if len(folders) == 1 else "**"
    ending = endings.pop() if len(endings) == 1 else ""
    return _join(inventory, posixpath.join(folder, f"*{ending}"))


def _folder(inventory: Inventory, group: FileGroup) -> str | None:
    if group.format in _LIVE:
        return None
    if group.format in _ARCHIVES:
        member = (group.largest_sample or "").rpartition(":")[2]
        above = posixpath.dirname(posixpath.dirname(member))
        return posixpath.join(UNPACKED, above) if above.isprintable() else UNPACKED
    if _is_the_root(inventory, group):
        return posixpath.dirname(inventory.root) or "."
    parts = group.name.split("/")
    for depth, part in enumerate(parts):
        if part.lower() in _SPLIT_WORDS.get(group.split or "", ()):
            return _join(inventory, "/".join(parts[: depth + 1]))
    return _join(inventory, ".")


def _is_flat(group: FileGroup) -> bool | None:
    """Whether the samples lie side by side, in no folders named after classes."""
    if group.kind == "image":
        return not group.classes
    if group.kind not in ("audio", "text"):
        return False
    parts = group.name.split("/")[:-1]
    return not [
        part for part in parts if part.lower() not in _SPLIT_WORDS.get(group.split or "", ())
    ]
