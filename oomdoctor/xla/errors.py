"""Why there is no answer from XLA. Each is a reason to fall back to the estimate without it."""

from __future__ import annotations

from oomdoctor.errors import OomDoctorError


class XlaError(OomDoctorError):
    """XLA could not tell the memory of this step. The message is one sentence."""


class PluginMissing(XlaError):
    """The compiler is not installed."""


class PluginUnsupported(XlaError):
    """The compiler that is installed is not one that was tested, or cannot be loaded."""


class CompilerEnded(XlaError):
    """The compiler was killed, ran out of memory, or stopped on a check of its own."""


class CompilerStalled(XlaError):
    """The compiler did not come to an end."""


class NotCompilable(XlaError):
    """The step holds something that XLA cannot compile."""
