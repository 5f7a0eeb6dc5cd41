"""Errors that applications raise, and those that they may catch."""

from __future__ import annotations

__all__ = ["CallEnded", "Cancelled", "ToolError"]


class ToolError(Exception):
    """ToolError fails a call. The model reads message; users read public_message, or else message. code is for
    programs.

    In a hook `before_run`, a guard or a prompt it fails the run. In a method, clients read message."""

    def __init__(self, message: str, *, public_message: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.public_message = public_message
        self.code = code


class Cancelled(Exception):
    """Cancelled ends a call whose run was stopped, or whose time is up: see `Call.raise_if_cancelled`."""


class CallEnded(RuntimeError):
    """CallEnded is an event, a write or a value that came after the end of its call."""
