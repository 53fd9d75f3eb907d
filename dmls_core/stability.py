"""Mark classes that may change sooner than the rest of the public API (policy: ``docs/stability.md``).

Deprecations use ``typing_extensions.deprecated``, which type checkers understand.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class ExperimentalWarning(FutureWarning):
    """A class was used that may change in any release."""


def experimental(reason: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that warns at the first instance, also of a subclass.

    ``reason`` is a clause: ``"it has not run on a GPU yet"``.
    """

    def decorate(cls: type[T]) -> type[T]:
        initialize = cls.__init__
        warned = False

        @functools.wraps(initialize)
        def init(self: T, *args: object, **kwargs: object) -> None:
            nonlocal warned
            if not warned:
                warned = True
                message = f"{cls.__qualname__} is experimental and may change in any release: {reason}"
                warnings.warn(message, ExperimentalWarning, stacklevel=2)
            initialize(self, *args, **kwargs)

        cls.__init__ = init  # type: ignore[method-assign,assignment]
        return cls

    return decorate
