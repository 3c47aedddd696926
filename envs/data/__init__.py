"""Data: rows of files, of the hub and of objects, and the tasks that are made of them."""

from .files import has_splits
from .tasks import BUILTIN, MAX_STREAMED, Data, Tasks, load_tasks

__all__ = ["BUILTIN", "MAX_STREAMED", "Data", "Tasks", "has_splits", "load_tasks"]
