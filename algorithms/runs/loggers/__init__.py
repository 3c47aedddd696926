"""Callbacks of a run: base class, notices, log services, and the display."""

from ..files import JsonLines, read_lines
from .callbacks import Callback, Logger
from .sinks import LogConfig, Sink, check_sinks, make_loggers

__all__ = ["Callback", "JsonLines", "LogConfig", "Logger", "Sink", "check_sinks", "make_loggers", "read_lines"]
