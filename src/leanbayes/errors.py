"""Errors that leanbayes raises on purpose: what was found, what was expected, what to write."""


class LeanBayesError(Exception):
    """The common base, so that one `except` catches all of them."""


class ConversionError(LeanBayesError, ValueError):
    """A network cannot be converted; it is left as it was."""


class PlanError(LeanBayesError, ValueError):
    """A sampling plan does not fit the rows, the members or the network."""


class ConfigError(LeanBayesError, ValueError):
    """A setting is missing, contradictory or out of range."""


class CheckpointError(LeanBayesError, ValueError):
    """A file on disk is damaged, foreign or does not fit the network."""


class DataError(LeanBayesError, ValueError):
    """Training or test data are empty, out of range or not finite."""


class TrainingError(LeanBayesError, RuntimeError):
    """A run cannot go on; what it had saved is still there."""


class NonFinite(TrainingError):  # noqa: N818
    """A loss, gradient or parameter is infinite or not a number."""


class OutOfMemory(TrainingError):  # noqa: N818
    """A step does not fit into memory."""


class Interrupted(SystemExit):
    """A signal ended the run after its state was saved; `code` is 128 + the signal's number."""


class NotFitted(UserWarning):
    """A posterior that is fitted after training predicts before that: its spread means nothing."""


class CollapsedMembers(UserWarning):
    """The members of an ensemble predict the same: they have become one network."""
