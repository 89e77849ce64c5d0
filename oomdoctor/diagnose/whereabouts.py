"""Where and who: paths, addresses, hosts and users, as they are written in logs.

Of a path the last part stays if it is a file, because it distinguishes a script from a checkpoint;
below `site-packages` the path inside a public package stays too. Folders go: they are named after
people and projects. TensorFlow's device names, which look like paths, stay whole.
"""

from __future__ import annotations

import re

_FILE = re.compile(
    r"[\w.+@=-]{1,120}\.(?:py|pyc|ipynb|h5|hdf5|keras|pb|pbtxt|ckpt(?:-\d{1,9})?|index|npy|npz|csv"
    r"|tsv|jsonl?|parquet|arrow|feather|tfrec|tfrecords?|gz|zip|tar|tgz|txt|log|out|err|png|jpe?g"
    r"|gif|bmp|tiff?|wav|mp[34]|whl|so(?:\.\d{1,5}){0,3}|dll|exe|html?|ya?ml|toml|ini|cfg|sh|bin"
    r"|pt|pth|onnx|safetensors|cc|cpp|cu|h|c|lock|data-\d{5}-of-\d{5}|tempstate\d{1,20})"
)
_PROGRAM = re.compile(
    r"python[\d.]{0,6}|pip[\d.]{0,6}|ba?sh|zsh|pytest|jupyter|ipython|slurm_script|nvidia-smi"
    r"|torchrun|mpirun|srun|conda"
)
_PUBLIC = re.compile(
    r"(?:site|dist)-packages/(?:tensorflow|keras|numpy|pandas|jax|jaxlib|xla|absl|h5py|tf_keras"
    r"|tensorflow_datasets|horovod|ray|joblib|sklearn|PIL|IPython|pyarrow|scipy)(?:/[\w.+-]{1,120})*"
)

_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,30})://([^\s\"'<>|]+)")
_ENDS_A_SENTENCE = ".,;:!?)]}"
_QUOTED_PATH = re.compile(r"(?<=[\"'])(?:[A-Za-z]:|~[\w.-]{0,40})?[\\/][^\"'\n]*(?=[\"'])")
_PATH = re.compile(
    r"(?<![\w/\\.~>])(?:[A-Za-z]:(?=[\\/])|~[\w.-]{0,40}(?=[\\/])|(?=/)|(?=\\\\))"
    r"(?:[\\/]+[^\s\\/\"'<>|:,;()\[\]{}`]+)+[\\/]*"
)
_WINDOWS_HOME = re.compile(r"(?i)[a-z]:[\\/]{1,4}Users[\\/]{1,4}[^\\/:*?\"'<>|\n]{1,64}(?=[\\/])")
"""A user's name may hold a blank, also where the path is not quoted."""
_WINDOWS_PATH = re.compile(
    r"(?<!\w)[A-Za-z]:\\{1,4}(?:[^\\/:*?\"'<>|\n]{1,64}\\{1,4})+[^\s\\/\"'<>|:,;()]*"
)
"""So may a folder's, where backslashes show that the path goes on."""
_DEVICE = re.compile(r"(?i)/(?:job|replica|task|device|physical_device|[cgt]pu):")

_LEVELS = r"(?!(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL|TRACE|NOTICE)\b)"
_HOST = r"[A-Za-z0-9][\w.-]{0,252}"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_VERSION = re.compile(
    r"(?:\bversions? ?[:=]? ?|\bv|={2,3} ?|-cu\d\d ?[ =]{1,24}|cu(?:dnn|blas|da)[ -]{1,2})\Z", re.I
)

_MACHINES: tuple[tuple[re.Pattern[str], str], ...] = (
    # scp and git; and the prompt of a shell.
    (re.compile(r"\b[\w.+-]{1,64}@[\w.-]{1,253}:(?!\d)[\w./~+-]+"), "<user>@<host>:<path>"),
    (re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,8}"), "<address>"),
    (re.compile(r"\b[\w.-]{1,64}@[\w-]{1,64}(?=[:~\s\])]|\Z)"), "<user>@<host>"),
    (re.compile(r"(?<![\w:.])(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:])", re.I), "<mac>"),
    (re.compile(r"(?<![\w:.])(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}(?![\w:])", re.I), "<ip>"),
    (
        re.compile(
            r"(?<![\w:.])(?=[0-9a-f:]{0,40}\d)(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6}"
            r"(?![\w:])",
            re.I,
        ),
        "<ip>",
    ),
    (
        re.compile(
            r"\b(?:[a-zA-Z0-9-]{1,63}\.){1,6}"
            r"(?:com|org|net|edu|gov|io|ai|dev|app|cloud|local|internal|lan|corp|intra|cluster|de"
            r"|fr|uk|ch|at|eu|it|nl|es|se|pl|cn|jp|kr|in|br|ca|au)\b(?![.\w(/])"
        ),
        "<host>",
    ),
    (re.compile(r"\bip(?:-\d{1,3}){4}\b"), "<host>"),
    # syslog, in its old form and in its new one
    (re.compile(rf"\b({_MONTH} [ \d]\d \d\d:\d\d:\d\d ){_LEVELS}{_HOST}(?= )"), r"\1<host>"),
    (
        re.compile(
            r"(\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? )"
            rf"{_LEVELS}{_HOST}(?= [\w./()-]{{1,60}}(?:\[\d{{1,10}}\])?: )"
        ),
        r"\1<host>",
    ),
    # schedulers and launchers
    (re.compile(rf"(\bON ){_HOST}(?= CANCELLED\b)"), r"\1<host>"),
    (re.compile(rf"(\bslurmstepd-|\bsrun: error: |\bslurmd\[|\bon node ){_HOST}"), r"\1<host>"),
    (
        re.compile(
            r"(?i)(\b(?:on|for|from) (?:host|node) |\bhostname )(?=[a-z][\w.-]{0,60}\d)"
            r"[\w.-]{1,253}"
        ),
        r"\1<host>",
    ),
    (re.compile(r"(^|\s)\[[A-Za-z][\w.-]{0,252}(?=:\d{2,8}\])"), r"\1[<host>"),
    (
        re.compile(
            # CUDA fails "on host: CUDA_ERROR_OUT_OF_MEMORY".
            r"(?i)((?<!\bon )\b\w{0,20}(?:host(?:name)?|nodename|nodelist|server)\b[\"']?\s{0,2}"
            r"[:=]\s{0,3}[\"']?)(?!\d)[\w.\[\]-]{1,253}"
        ),
        r"\1<host>",
    ),
    (
        re.compile(
            r"(?i)(\b(?:account[_-]?name|bucket(?:[_-]?name)?)\b[\"']?\s{0,2}[:=]\s{0,3}[\"']?)"
            r"(?=[a-z])[\w.-]{1,100}"
        ),
        r"\1<bucket>",
    ),
    # users
    (
        re.compile(
            r"(?i)((?:\b|_)(?:user(?:[_-]?name)?|logname|owner|login)\b[\"']?\s{0,2}[:=]"
            r"\s{0,3}[\"']?)(?=[a-z])[\w.@-]{1,64}"
        ),
        r"\1<user>",
    ),
    (re.compile(r"((?:\b[ug]id=|\bgroups=|,)\d{1,10}\()[\w.-]{1,64}(?=\))"), r"\1<user>"),
    (
        re.compile(r"(?i)(\blogged in as:? )[\w.@-]{1,64}( \()?(?:(?<=\()[\w.@ -]{1,64}(?=\)))?"),
        r"\1<user>\2",
    ),
    (re.compile(r"(\bsudo: {1,12})[\w.-]{1,64}(?= : )"), r"\1<user>"),
    (re.compile(r"(?i)(\b(?:for|of|by|from|as) user )[\"']?[\w.@-]{1,64}"), r"\1<user>"),
)
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![.\w])")


def without_addresses(text: str) -> str:
    """Return a line whose URLs have lost their hosts, buckets, folders, users and queries."""
    return _URL.sub(_clean_url, text) if "://" in text else text


def without_whereabouts(text: str) -> str:
    """Return a line without paths, hosts and users."""
    if "/" in text or "\\" in text:
        text = _QUOTED_PATH.sub(_clean_path, text)
        text = _WINDOWS_PATH.sub(_clean_path, text)
        text = _WINDOWS_HOME.sub("<path>", text)
        text = _PATH.sub(_clean_path, text)
    for pattern, instead in _MACHINES:
        text = pattern.sub(instead, text)
    return _IP.sub(lambda match: _clean_ip(match, text), text)


def _clean_url(match: re.Match[str]) -> str:
    scheme, rest = match[1].lower(), match[2]
    end = rest[len(rest.rstrip(_ENDS_A_SENTENCE)) :]
    place = rest[: len(rest) - len(end)]
    path = re.split(r"[?#]", place, maxsplit=1)[0]
    if scheme == "file":
        return f"file://{_shortened(path)}{end}"
    host = "<bucket>" if scheme in ("s3", "s3a", "gs", "gcs", "hf", "az") else "<host>"
    _, slash, below = path.partition("/")
    name = _kept(below) if slash else None
    return f"{scheme}://{host}{'/<path>' if below else ''}{'/' + name if name else ''}{end}"


def _clean_path(match: re.Match[str]) -> str:
    return _shortened(match[0])


def _shortened(path: str) -> str:
    """A path without its folders. One that has none, such as /tmp or /step, stays."""
    if _DEVICE.match(path):
        return path
    plain = re.sub(r"[\\/]+", "/", path)
    parts = [part for part in plain.split("/") if part]
    if len(parts) < 2 and not plain.startswith("~"):
        return path
    name = _kept(plain)
    return "<path>" if name is None else f"<path>/{name}"


def _kept(path: str) -> str | None:
    """What may stay of a path: a file's name, with the public package it is in."""
    last = path[path.rstrip("/").rfind("/") + 1 :]
    if not (_FILE.fullmatch(last) or _PROGRAM.fullmatch(last)):
        return None
    public = _PUBLIC.search(path)
    return public[0] if public and path.endswith(public[0]) else last


def _clean_ip(match: re.Match[str], text: str) -> str:
    """Versions of cuDNN have four parts too."""
    before = text[max(0, match.start() - 40) : match.start()]
    return match[0] if _VERSION.search(before) else "<ip>"
