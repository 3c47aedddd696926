"""Games in which agents first send messages and then choose actions. Their exact solutions are known."""

from .advice import Advice
from .core import TalkEnv
from .matrix_game import MatrixGame
from .profile import Profile
from .tiny_hanabi import TinyHanabi

__all__ = ["Advice", "MatrixGame", "Profile", "TalkEnv", "TinyHanabi"]
