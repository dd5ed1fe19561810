"""A log of who called what: append-only, each record sealed to the one before it."""

from toolexec.run.audit.log import ArgsMode, AuditLog
from toolexec.run.audit.reading import AuditReader, read_last
from toolexec.run.audit.verify import Problem, VerifyReport, verify

__all__ = ["ArgsMode", "AuditLog", "AuditReader", "Problem", "VerifyReport", "read_last", "verify"]
