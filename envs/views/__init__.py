"""Views: wrappers that convert observations, actions or the interface of an environment for other libraries."""

from ..players import Partner
from ..registration.foreign import GymAsParallel, TupleTeam, TurnBased
from ..registration.turn_limit import TurnLimit
from .aec import to_aec
from .conversation import Conversation, Conversations, Heard
from .phrases import PhraseActions, reference_phrases
from .privileged import PrivilegedState, with_truth
from .single_agent import SingleAgent
from .structured import ChatObservations, DictObservations, FlatObservations, MaskedObservations, NumericInfos
from .tokens import ByteCodec, Codec, TokenActions, TokenObservations, WordCodec
from .view import View

__all__ = [
    "ByteCodec",
    "ChatObservations",
    "Codec",
    "Conversation",
    "Conversations",
    "DictObservations",
    "FlatObservations",
    "GymAsParallel",
    "Heard",
    "MaskedObservations",
    "NumericInfos",
    "Partner",
    "PhraseActions",
    "PrivilegedState",
    "SingleAgent",
    "TokenActions",
    "TokenObservations",
    "TupleTeam",
    "TurnBased",
    "TurnLimit",
    "View",
    "WordCodec",
    "reference_phrases",
    "to_aec",
    "with_truth",
]
