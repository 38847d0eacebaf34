"""What Attile raises: one class for each kind of error, all of them attile.Error, with the text that C++ gives."""


class Error(Exception):
    """Base of everything that Attile raises."""


class ArgumentError(Error, ValueError):
    """An argument is wrong: a shape, a type of elements, a number, a combination of options."""


class ArgumentTypeError(Error, TypeError):
    """An argument is of the wrong Python type."""


class TracingError(Error, ValueError):
    """A score_mod or mask_mod does what cannot become part of a kernel; the text names the file and the line."""


class UnsupportedError(Error, NotImplementedError):
    """Understood, but this build or machine cannot do it."""


class EnvironmentError(Error, RuntimeError):  # noqa: A001 - the kind's name in C++
    """Something outside the process is missing or broken: a library, a file, a device."""


class ResourceError(Error, MemoryError):
    """Memory, disk space or another limit ran out."""


class InternalError(Error, RuntimeError):
    """A fault of Attile's own."""
