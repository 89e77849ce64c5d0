"""Errors a person can act on: what happened, then what to do, each with an exit code."""

from __future__ import annotations


class OomDoctorError(Exception):
    """Something oomdoctor could not do. The message says what happened and what to do next."""

    exit_code = 2


class UsageError(OomDoctorError, ValueError):
    """An argument, option or configuration key is wrong."""


class InputError(OomDoctorError):
    """What was to be examined cannot be read, or holds nothing to examine."""


class RuleError(OomDoctorError, ValueError):
    """A rule file is wrong. The message names the file, the place and the nearest valid key."""


class MissingPackageError(OomDoctorError, ImportError):
    """An optional package is needed and not installed. The message names the extra."""


class DoesNotFitError(OomDoctorError, MemoryError):
    """Not even the smallest batch fits. `report` holds the remedies that would help."""

    exit_code = 1

    def __init__(self, message: str, report: object = None) -> None:
        super().__init__(message)
        self.report = report
