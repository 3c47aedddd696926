"""One row an episode and one prompt a group give what every turn alone gives, gradients included."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from architectures import model_of
from fakes import random_llama
from torch import nn

from collm.agents.core import Completion
from collm.agents.decoding.sampling import Sampling, draw
from collm.agents.encoding import TokenRecord
from collm.agents.scoring.packing import PassCost, laid_out, num_tokens, rows_of, trees_of
from collm.agents.scoring.scorer import Scorer
from collm.agents.scoring.token_scores import MAX_LOGITS, TILE_LOGITS, logit_scores, token_scores


def track_of(rng, prompt, num_turns):
    """Turns that extend each other, of random lengths."""
    track, ids = [], prompt
    for turn in range(num_turns):
        reply = rng.integers(1, 97, int(rng.integers(1, 9)))
        track.append(Completion("", tokens=TokenRecord(ids, reply, turn > 0, "")))
        ids = np.concatenate([ids, reply, rng.integers(1, 97, 3)])
    return tuple(track)


def groups(num_groups=3, size=4, num_turns=1, prompt_length=12):
    rng = np.random.default_rng(0)
    tracks = []
    for number in range(num_groups):
        prompt = rng.integers(1, 97, prompt_length + 3 * number)
        tracks += [track_of(rng, prompt, num_turns) for _ in range(size)]
    return tracks


def all_rows(tracks):
    return [row for track in tracks for row in rows_of(track)]


def scored(scorer, tracks, temperature=0.8):
    """Log-probabilities, entropies, prompt ends, and a gradient that weighs every token and turn differently."""
    scorer.base.zero_grad()
    logprobs, entropies, ends = scorer.scores(all_rows(tracks), temperature)
    loss = (logprobs * torch.linspace(-1, 1, len(logprobs))).sum()
    loss = loss + (entropies * torch.linspace(0, 1, len(logprobs))).sum()
    (loss + (ends.sum(dim=1) * torch.linspace(-1, 2, len(ends))).sum()).backward()
    gradient = torch.cat([weight.grad.flatten() for weight in scorer.base.parameters() if weight.grad is not None])
    return logprobs.detach(), entropies.detach(), ends.detach(), gradient


@pytest.mark.parametrize("num_turns", [1, 3])
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2", "qwen3", "olmo"])
def test_rows_and_trees_give_the_gradient_of_every_turn_alone(name, num_turns):
    model = model_of(name)
    scorer = Scorer(model.double() if name == "gpt2" else model)  # the others normalize in single precision always
    scorer.cost = PassCost(token=1, pair=0)  # share whatever can be shared
    tracks = groups(num_turns=num_turns)
    rows = all_rows(tracks)
    assert scorer.shares_prompts and len(rows) == len(tracks)
    assert sum(tree.length for tree in scorer._trees(rows)) < sum(len(row.ids) for row in rows)
    together = scored(scorer, tracks)
    scorer.shares_prompts = False
    turns = [replace(turn.tokens, is_extension=False) for track in tracks for turn in track]
    apart = scored(scorer, [(Completion("", tokens=tokens),) for tokens in turns])
    for ours, theirs in zip(together[:3], apart[:3], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    tolerance = {"gpt2": 1e-12, "olmo": 2e-6}.get(name, 1e-6)
    assert float((together[3] - apart[3]).norm() / apart[3].norm()) < tolerance


def test_a_model_that_ignores_the_mask_gets_separate_rows():
    class Deaf(type(random_llama().model)):
        """Ignores masks: its attention is causal."""

        def forward(self, input_ids=None, attention_mask=None, **kwargs):
            return super().forward(input_ids=input_ids, **kwargs)

    model = random_llama(vocab_size=97).eval()
    model.model.__class__ = Deaf
    scorer = Scorer(model)
    assert not scorer.shares_prompts
    tracks = groups()
    apart = [scorer.scores(rows_of(track), 1.0)[0] for track in tracks]
    together = scorer.scores(all_rows(tracks), 1.0)[0]
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=1e-5)


def test_rows_beyond_an_attention_window_stand_alone():
    scorer = Scorer(model_of("windowed"))
    assert scorer.shares_prompts
    short, long = groups(prompt_length=5, num_groups=1), groups(prompt_length=40, num_groups=1)
    for tracks, is_shared in ((short, True), (long, False)):
        rows = all_rows(tracks)
        assert (len(scorer._trees(rows)) < len(rows)) == is_shared
        apart = torch.cat([scorer.scores([row], 1.0)[0] for row in rows])
        torch.testing.assert_close(scorer.scores(rows, 1.0)[0], apart, atol=1e-5, rtol=1e-5)


def test_layouts_by_hand_share_prompts_only_where_that_is_cheaper():
    prompt, one, two = np.array([5, 6]), np.array([7]), np.array([8, 9])
    tracks = [(Completion("", tokens=TokenRecord(prompt, reply, False, "")),) for reply in (one, two)]
    rows = all_rows(tracks)
    layout = laid_out(rows, trees_of(rows, PassCost(token=1, pair=0)))
    assert layout.ids.tolist() == [[5, 6, 7, 8, 9]]
    assert layout.places.tolist() == [[0, 1, 2, 2, 3]]
    visible = ["".join(map(str, row)) for row in layout.is_visible[0].astype(int)]
    assert visible == ["10000", "11000", "11100", "11010", "11011"]
    assert layout.predictors.tolist() == [[0, 0, 0], [1, 1, 3]]
    assert layout.targets.tolist() == [7, 8, 9]
    assert layout.prompt_ends.tolist() == [[0, 0], [1, 1]]
    rows = all_rows(groups(num_groups=1))
    assert len(trees_of(rows, PassCost(token=1, pair=0))) == 1
    assert len(trees_of(rows, PassCost(token=1, pair=1))) == len(rows)
    assert max(tree.length for tree in trees_of(rows, PassCost(token=1, pair=0), max_tree=25)) <= 25
    rng = np.random.default_rng(1)
    first, second = track_of(rng, np.arange(1, 6), 2), track_of(rng, np.arange(1, 9), 1)
    track = first + second
    rows = rows_of(track)
    assert [len(row.turns) for row in rows] == [2, 1]
    assert num_tokens(track) == sum(len(row.ids) for row in rows)


def test_batches_hold_every_track_once_keep_to_the_budget_and_keep_groups_together():
    scorer = Scorer(random_llama(vocab_size=97).eval())
    tracks = groups(num_groups=6)
    items = [i for i in range(len(tracks)) if i != 3]
    batches = scorer.batches(tracks, items, max_tokens=80)
    assert sorted(i for batch in batches for i in batch) == items
    for batch in batches:
        trees = scorer._trees([row for i in batch for row in rows_of(tracks[i])])
        assert len(trees) == 1 or len(trees) * max(tree.length for tree in trees) <= 80
    together = [{i // 4 for i in batch} for batch in batches]
    assert all(sum(group in batch for batch in together) == 1 for group in range(6))


def nucleus(probabilities, top_k, top_p):
    """Kept words by plain sorting."""
    order = sorted(range(len(probabilities)), key=lambda word: -probabilities[word])[: top_k or None]
    total, stays = sum(probabilities[word] for word in order), []
    for word in order:
        if sum(probabilities[each] for each in stays) < top_p * total:
            stays.append(word)
    return stays


def oracle_scores(logits, targets, temperature, filters=None):
    """Scores by torch's distribution and its derivatives, over the words that the filters keep."""
    scaled = logits / temperature
    if filters is not None:
        hidden = torch.ones_like(logits, dtype=torch.bool)
        for row, probabilities in zip(hidden, torch.softmax(scaled, -1).tolist(), strict=True):
            row[nucleus(probabilities, filters.top_k, filters.top_p)] = False
        scaled = scaled.masked_fill(hidden, -1e30)
    words = torch.distributions.Categorical(logits=scaled)
    return words.log_prob(targets), words.entropy()


def graded(score, states, *modules, wanted="both"):
    """Scores, and gradients of a sum that weighs every token differently."""
    for module in modules:
        module.zero_grad()
    states = states.clone().requires_grad_()
    logprobs, entropies = score(states)
    weights = torch.linspace(-1, 1, len(logprobs)).to(logprobs)
    own = 0 if wanted == "entropies" else (logprobs * weights).sum()
    (own + (0 if wanted == "log-probabilities" else (entropies * weights.flip(0)).sum())).backward()
    learned = (weight for module in modules for weight in module.parameters())
    return [logprobs, entropies, states.grad, *(weight.grad.clone() for weight in learned)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("wanted", ["both", "log-probabilities", "entropies"])
@pytest.mark.parametrize("filters", [None, Sampling(top_p=0.6), Sampling(top_k=3), Sampling(top_k=9, top_p=0.8)])
def test_scores_of_logits_and_their_gradients_are_those_of_the_distribution(temperature, wanted, filters):
    torch.manual_seed(1)
    logits = 4 * torch.randn(37, 101, dtype=torch.float64)
    targets = torch.randint(0, 101, (37,)) if filters is None else logits.argmax(-1)  # which every filter keeps
    found, expected = (
        graded(lambda leaf, score=score: score(leaf, targets, temperature, filters), logits, wanted=wanted)
        for score in (logit_scores, oracle_scores)
    )
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


def test_scores_of_logits_keep_one_array_of_their_size_and_leave_them_as_they_are():
    logits = torch.randn(6, 50, dtype=torch.bfloat16, requires_grad=True)
    before, sizes = logits.detach().clone(), []
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: sizes.append(kept.numel()) or kept, lambda kept: kept):
        logprobs, entropies = logit_scores(logits, torch.arange(6), 1.0)
    assert sum(size >= logits.numel() for size in sizes) == 1
    assert torch.equal(logits, before) and logprobs.dtype == entropies.dtype == torch.float32
    logprobs.sum().backward()
    assert logits.grad.dtype == torch.bfloat16


@pytest.fixture
def tiled(monkeypatch):
    def limit(max_logits, tile_logits):
        monkeypatch.setitem(MAX_LOGITS, "cpu", max_logits)
        monkeypatch.setitem(TILE_LOGITS, "cpu", tile_logits)

    return limit


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("tile_logits", [1, 37 * 20, 10_000])
def test_tiles_give_the_scores_and_gradients_of_the_whole_vocabulary(tiled, tile_logits, has_bias):
    tiled(1, tile_logits)
    torch.manual_seed(0)
    states, targets = torch.randn(37, 16, dtype=torch.float64), torch.randint(0, 101, (37,))
    linear = nn.Linear(16, 101, bias=has_bias).double()
    expected = graded(lambda h: oracle_scores(linear(h), targets, 0.7), states, linear)
    for head in (linear, nn.Sequential(linear)):  # tiles along the vocabulary, and along the tokens
        found = graded(lambda h, head=head: token_scores(h, head, targets, 0.7), states, linear)
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_tiles_hold_for_large_logits_a_frozen_head_and_a_large_vocabulary(tiled):
    tiled(1, 16)
    states = 300 * torch.eye(4).repeat(2, 1)
    head = nn.Linear(4, 9, bias=False).requires_grad_(False)
    nn.init.eye_(head.weight)
    states.requires_grad_()
    targets = torch.arange(8) % 5
    logprobs, entropies = token_scores(states, head, targets, 1.0)
    torch.testing.assert_close((logprobs, entropies), logit_scores(head(states), targets, 1.0))
    logprobs.sum().backward()
    assert torch.isfinite(states.grad).all()
    assert head.weight.grad is None
    tiled(100_000, 50_000)
    sizes, head = [], nn.Sequential(nn.Linear(8, 5000))
    head.register_forward_hook(lambda module, inputs, output: sizes.append(output.numel()))
    states = torch.randn(300, 8, requires_grad=True)
    logprobs, _ = token_scores(states, head, torch.arange(300), 1.0)
    logprobs.sum().backward()
    assert max(sizes) <= 50_000


@pytest.mark.parametrize("max_logits", [1, 10_000])
def test_words_that_cannot_be_drawn_add_nothing_to_entropies_and_gradients(tiled, max_logits):
    """Logits 1, 2 and minus infinity, as the sampler has them: H = 0.5822."""
    tiled(max_logits, 2)
    head = nn.Linear(1, 3)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([1.0, 2.0, -torch.inf]))
    states = torch.ones(2, 1, requires_grad=True)
    targets = torch.tensor([0, 1])
    logprobs, entropies = token_scores(states, head, targets, 1.0)
    drawn = draw(torch.tensor([[1.0, 2.0, -torch.inf]]), Sampling(), torch.tensor([0.1], dtype=torch.float64))
    torch.testing.assert_close(entropies, drawn.entropies.expand(2))
    assert entropies[0].item() == pytest.approx(0.5822, abs=1e-4)
    torch.testing.assert_close(logprobs[:1], drawn.logprobs)
    (logprobs + entropies).sum().backward()
    assert all(torch.isfinite(grad).all() for grad in (states.grad, head.weight.grad, head.bias.grad))
    # d(log pi_0 + log pi_1)/dz_0 = 1 - 2 p_0, and twice dH/dz_0 = -p_0 (z_0 - mean z)
    p = torch.softmax(torch.tensor([1.0, 2.0]), 0)
    expected = 1 - 2 * p[0] - 2 * p[0] * (1.0 - (p @ torch.tensor([1.0, 2.0])))
    assert head.bias.grad[0].item() == pytest.approx(expected.item(), abs=1e-5)
    assert head.bias.grad[2].item() == 0


def test_the_sampler_and_the_scorer_agree_on_the_filtered_distribution():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(400, 97, generator=generator)
    noise = torch.rand(400, dtype=torch.float64, generator=generator)
    for top_k, top_p in ((0, 0.6), (5, 1.0), (20, 0.7)):
        sampling = Sampling(temperature=0.7, top_k=top_k, top_p=top_p, learns_filtered=True)
        drawn = draw(logits.clone(), sampling, noise)
        plain = draw(logits.clone(), replace(sampling, learns_filtered=False), noise)
        assert torch.equal(drawn.tokens, plain.tokens)
        logprobs, entropies = logit_scores(logits, drawn.tokens, 0.7, sampling)
        torch.testing.assert_close(drawn.logprobs, logprobs, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(drawn.entropies, entropies, atol=1e-5, rtol=1e-5)
        assert (drawn.logprobs >= plain.logprobs - 1e-6).all() and (entropies < plain.entropies).all()
    logprobs, _ = logit_scores(torch.tensor([[3.0, 2.0, 0.0]]), torch.tensor([2]), 1.0, Sampling(top_k=1))
    assert logprobs.item() == pytest.approx(-np.log(1 + np.exp(3)))


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "opt", "bart"])
def test_the_head_is_used_alone_only_if_it_computes_the_logits(name):
    scorer = Scorer(model_of(name))
    assert scorer._has_plain_head is (name != "gemma2")
    tracks = groups(num_groups=1, size=2)
    logprobs, _, ends = scorer.scores(all_rows(tracks), 1.0)
    plain = model_of(name)
    turns = [turn.tokens for track in tracks for turn in track]
    expected = []
    for turn in turns:
        ids = torch.tensor([*turn.prompt_ids, *turn.completion_ids])[None]
        start = turn.prompt_ids.size
        scores = plain(input_ids=ids, use_cache=False).logits[0, start - 1 : -1].log_softmax(-1)
        expected.append(scores.gather(1, ids[0, start:, None])[:, 0])
    torch.testing.assert_close(logprobs, torch.cat(expected), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(scorer.prompt_states(all_rows(tracks)), ends, atol=1e-5, rtol=1e-4)


def test_a_cap_is_found_if_logits_are_too_small_to_be_capped():
    model = model_of("gemma2")
    assert model.config.final_logit_softcapping == 30
    with torch.no_grad():
        for weight in model.lm_head.parameters():
            weight.mul_(0.1)
    ids = torch.arange(8)[None]
    states = model.model(input_ids=ids, use_cache=False).last_hidden_state
    torch.testing.assert_close(model(input_ids=ids).logits, model.lm_head(states), atol=1e-4, rtol=1e-3)
    assert not Scorer(model)._has_plain_head


def test_a_model_of_three_words_is_served():
    model = random_llama(vocab_size=3)
    track = (Completion("", tokens=TokenRecord(np.array([1, 2]), np.array([0, 1]), False, "")),)
    logprobs, _, _ = Scorer(model).scores(rows_of(track), 1.0)
    logits = model(torch.tensor([[1, 2, 0]])).logits[0, 1:].log_softmax(-1)
    torch.testing.assert_close(logprobs, logits[[0, 1], [0, 1]], atol=1e-5, rtol=0)
