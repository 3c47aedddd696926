"""Loading of tasks from files, from data sets on the Hugging Face hub, or from Python objects."""

from .files import has_splits
from .tasks import BUILTIN, MAX_STREAMED, Data, OnBadRow, Tasks, load_tasks, renamed_columns

__all__ = ["BUILTIN", "MAX_STREAMED", "Data", "OnBadRow", "Tasks", "has_splits", "load_tasks", "renamed_columns"]
