"""Messages of TextArena's games, without the library."""

from __future__ import annotations

import enum

from collm.envs.views.textarena import _with_author


def test_a_game_may_swap_a_messages_author_and_kind():
    class Kind(enum.Enum):
        PROMPT = 1

    assert [_with_author(message, reader=0) for message in ((1, "hi", Kind.PROMPT), (Kind.PROMPT, "hi", 1))] == [
        "[player_1] hi",
        "[player_1] hi",
    ]
    assert _with_author((Kind.PROMPT, "rules", -1), 0) == _with_author((-1, "rules", Kind.PROMPT), 0) == "rules"
    assert _with_author((0, "my own", Kind.PROMPT), 0) is None
