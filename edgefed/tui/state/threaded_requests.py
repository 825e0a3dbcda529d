"""Call a slow function in a thread, and continue with its result on the screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from textual.screen import Screen

from edgefed.tui.state.messages import Answered, CoordinatorRequest, ThreadDone

T = TypeVar("T")


def in_thread(
    screen: Screen[Any],
    call: Callable[[], T],
    then: Callable[[T], None],
    failed: str,
    otherwise: Callable[[], None] = lambda: None,
) -> None:
    """Call ``call`` in a thread, then ``then`` with its result if the screen still exists.

    Args:
        screen: the caller.
        call: may take long.
        then: takes the result, in the app's thread.
        failed: heading of an error that is not EdgeFed's own.
        otherwise: called after an error, which the app has shown the user.
    """
    app = screen.app

    def finish(result: T) -> None:
        if screen.is_attached:  # else its user has left
            then(result)

    def work() -> None:
        try:
            result = call()
        except Exception as error:  # whatever it is, the screen must live on
            app.post_message(Answered(CoordinatorRequest(lambda: "", failed), error=error))
            app.post_message(ThreadDone(otherwise))
        else:
            app.post_message(ThreadDone(partial(finish, result)))

    screen.run_worker(work, thread=True, group="asking")
