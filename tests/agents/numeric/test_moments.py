import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collm.agents.numeric.moments import RunningMoments

batches = st.lists(st.lists(st.floats(-100, 100), min_size=0, max_size=5), min_size=1, max_size=5)


def column(values):
    return torch.tensor(values, dtype=torch.float64)


def test_moments_by_hand():
    moments = RunningMoments.empty().updated(column([1.0, 3.0])).updated(column([5.0]))
    assert moments.count == 3 and moments.mean == 3
    assert moments.std.item() == pytest.approx((8 / 3) ** 0.5)
    items, empty = column([4.0, -7.0]), RunningMoments.empty()
    moments = empty.updated(column([1.0, 2.0, 9.0]))
    torch.testing.assert_close(moments.denormalize(moments.normalize(items)), items)
    assert torch.equal(empty.normalize(items), items) and empty.updated(column([])).count == 0
    items = torch.tensor([[0.0, 5.0], [2.0, 5.0]])
    normalized = RunningMoments.empty((2,)).updated(items).normalize(items)
    # the second component does not vary
    assert normalized.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert normalized.dtype == torch.float32
    moments = RunningMoments.empty()
    for _ in range(50):
        moments = moments.updated(column([0.1, 0.1, 0.1]))
    assert moments.std == 1
    with pytest.raises(ValueError, match=r"items have shape \(3,\)"):
        RunningMoments.empty((2,)).updated(torch.zeros(3))


@settings(deadline=None)
@given(batches)
def test_moments_do_not_depend_on_the_batches(batches):
    whole = RunningMoments.empty().updated(column([x for batch in batches for x in batch]))
    pieces = RunningMoments.empty()
    for batch in batches:
        pieces = pieces.updated(column(batch))
    torch.testing.assert_close(pieces.mean, whole.mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(pieces.squares, whole.squares, rtol=1e-9, atol=1e-6)
