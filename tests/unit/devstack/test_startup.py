from __future__ import annotations

import threading

import pytest

from dmls_core.devstack.startup import Step, run_steps
from dmls_core.errors import PlatformError


def test_steps_wait_for_what_they_need_and_for_nothing_else():
    done: list[str] = []
    both = threading.Barrier(2, timeout=60)

    def together(name: str):
        def action(_: threading.Event) -> None:
            both.wait()  # passes only if the two run at once
            done.append(name)

        return action

    reported: list[tuple[str, str]] = []
    run_steps(
        [
            Step("last", lambda _: done.append("last"), ("a", "b")),
            Step("a", together("a")),
            Step("b", together("b")),
        ],
        lambda name, state, _: reported.append((name, state)),
    )
    assert done[-1] == "last"
    assert set(done) == {"a", "b", "last"}
    assert reported[-1] == ("last", "ready")
    assert reported.index(("a", "ready")) < reported.index(("last", "starting"))


def test_a_failure_stops_the_others_and_is_what_is_raised():
    begun: list[str] = []
    reported: list[tuple[str, str]] = []

    def patient(given_up: threading.Event) -> None:
        begun.append("patient")
        assert given_up.wait(5)
        raise PlatformError("given up")

    def failing(_: threading.Event) -> None:
        raise PlatformError("s3 did not start")

    steps = [
        Step("patient", patient),
        Step("s3", failing),
        Step("never", lambda _: begun.append("never"), ("s3",)),
    ]
    with pytest.raises(PlatformError, match="s3 did not start"):
        run_steps(steps, lambda name, state, _: reported.append((name, state)))
    assert begun == ["patient"]
    assert ("s3", "failed") in reported


def test_an_unexpected_error_is_a_platform_error_too():
    def broken(_: threading.Event) -> None:
        raise KeyError("what")

    with pytest.raises(PlatformError, match="KeyError") as caught:
        run_steps([Step("x", broken)], lambda *_: None)
    assert isinstance(caught.value.__cause__, KeyError)
