"""Loading of tasks from files, from data sets on the Hugging Face hub, or from Python objects."""

from .files import has_splits
from .tasks import BUILTIN, MAX_STREAMED, Data, Tasks, load_tasks

__all__ = ["BUILTIN", "MAX_STREAMED", "Data", "Tasks", "has_splits", "load_tasks"]
