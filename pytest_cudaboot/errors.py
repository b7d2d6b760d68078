"""Every error that this package raises on purpose. One root, so that a caller can tell ours from a bug."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class CudabootError(Exception):
    """Root of all errors raised on purpose."""


class UsageError(CudabootError):
    """The user asked for something that can not be; the message says what could."""


class SelectionError(UsageError):
    """`--gpus` names a card that is absent, masked out, named twice or not usable."""


class LeaseError(UsageError):
    """A card is in use by another run or by what one left behind, or the lease folder can not be trusted."""


class CatalogError(UsageError):
    """A catalogue (or waiver file) is malformed; the message names file, table and key."""


class ProjectError(UsageError):
    """A directory is not a project under test, or lacks a part that was asked for."""


class DocumentError(UsageError):
    """A bring-up document is too large or no text, or what was remembered of one is malformed."""


class BoxError(CudabootError):
    """The box contradicts itself (NVML against the bus, a pin that does not hold): nothing after it means anything."""


class PinError(BoxError):
    """A device process does not see exactly the card it was pinned to."""


class SkewError(BoxError):
    """Two parts of a toolchain that must come from one commit do not."""


class ToolMissingError(CudabootError):
    """A program, plugin or library was not found; the message lists every place tried."""


class CommandError(CudabootError):
    """A command failed or outlived its budget; the message is a recipe to run it again.

    :param survivors: processes of its group that live on after SIGKILL, in words.
    """

    def __init__(self, message: str, survivors: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.survivors = tuple(survivors)


class CommandHangError(CommandError):
    """A command outlived its budget and was killed; the message is the same recipe."""


class CommandCrashError(CommandError):
    """A command died of a signal, or a shell says that what it ran did; the message is the same recipe."""


class BuildError(CommandError):
    """A compiler refused the sources, or could not write its output."""


class CompileError(BuildError):
    """A graph compiler refused a module, crashed, hung, or wrote half a file; the message names step and fix."""


class BusyError(CudabootError):
    """Another process keeps what is needed, and longer than can be waited: it says nothing of what is under test."""


class PinnedVersionError(CudabootError):
    """An installed version is not what the project pins, or the pin can not be read."""


class TargetError(CudabootError):
    """A compile target is none, or is beyond what a card or its driver can load."""


class SignatureError(CudabootError):
    """A StableHLO module breaks the artifact rules, or its entry's signature can not be read."""


class DataError(CudabootError):
    """A data file is truncated, of another format, or holds values out of range."""


class NumericError(CudabootError):
    """A result lies outside its tolerance."""


class NotAsDocumentedError(CudabootError):
    """A canary failed, but not in the documented way."""


class CanarySilentError(CudabootError):
    """A canary did not fail at all."""


class ShimError(CudabootError):
    """A shim returned a code other than 0.

    :param message: what the shim wrote on stderr, or a sentence if it wrote nothing.
    :param code: the ABI's return code: 1 guard, 2 host to device, 3 execute, 4 device to host.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class UnsupportedError(ShimError):
    """A shim answered 99: it does not implement what was asked."""


class DeviceError(CudabootError):
    """A device process ended without an answer, or its service failed in a way that nobody foresaw.

    :param evidence: plain data that is left of the process: `returncode`, `signal`, `verb`, `log`, `log_tail`, ...
    """

    def __init__(self, message: str, evidence: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.evidence = evidence or {}


class PeerGoneError(DeviceError):
    """The other end of a channel closed, died, or no longer speaks the language."""


class LateError(DeviceError):
    """A deadline passed before a whole frame did."""


class DeviceGoneError(DeviceError):
    """A call was not sent: the device process had ended before it.

    :param cause: what ended it, in the words of a cell's cause; None if it was closed in order.
    :param culprit: the test under which it ended, or None.
    """

    def __init__(
        self,
        message: str,
        evidence: dict[str, Any] | None = None,
        *,
        cause: str | None = None,
        culprit: str | None = None,
    ) -> None:
        super().__init__(message, evidence)
        self.cause = cause
        self.culprit = culprit


class DevicePoisonedError(DeviceError):
    """A device process lives on, but nothing that it answers from now on counts: its context is broken for good."""


class HostMemoryError(DeviceError):
    """A device process asked the kernel for memory and got none; it lives on."""


class LeakError(CudabootError):
    """A test left a process on its card, which has been ended since."""


class CardLostError(CudabootError):
    """The driver has lost a card: it answers nothing any more."""


class CardAsideError(DeviceError):
    """A card is set aside for the rest of the run: something on it can not be killed."""


class DeviceCrashError(DeviceError):
    """A device process died during a call; the message says by which signal or exit status."""


class DeviceHangError(DeviceError):
    """A device process did not answer within its budget and was killed."""


class NoReferenceError(CudabootError):
    """An operation is not among those that the float64 interpreter computes."""


class NoTimeLeftError(CudabootError):
    """What is looked for beside a test has used up its own budget."""
