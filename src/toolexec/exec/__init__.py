"""The facade: one object to find, read about, run, chain and stream tools."""

from toolexec.exec.chain import ChainResult, Step
from toolexec.exec.facade import Exec
from toolexec.exec.options import Options, SecurityProfile
from toolexec.exec.sources import Added
from toolexec.exec.sync import SyncExec

__all__ = ["Added", "ChainResult", "Exec", "Options", "SecurityProfile", "Step", "SyncExec"]
