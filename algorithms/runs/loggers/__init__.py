"""What a run tells while it goes on: lines of JSON, a live display, and on request services that draw curves."""

from .lines import JsonLines, cut_lines, each_line, read_lines
from .sinks import Evaluated, LogConfig, Logger, Sink, check_sinks, make_loggers

__all__ = [
    "Evaluated",
    "JsonLines",
    "LogConfig",
    "Logger",
    "Sink",
    "check_sinks",
    "cut_lines",
    "each_line",
    "make_loggers",
    "read_lines",
]
