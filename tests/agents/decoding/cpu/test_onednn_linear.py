"""Linear layers by oneDNN give what torch's give, with their gradients; nothing else about a model changes."""

import copy
import pickle
from contextlib import nullcontext

import pytest
import torch
from architectures import model_of
from torch import nn

from collm.agents.decoding import decoder as decoding
from collm.agents.decoding.cpu import is_plain_linear, onednn_linear, packed_weights, patch_layers, patching
from collm.agents.decoding.cpu.kernels import SWITCH
from collm.agents.decoding.cpu.onednn_linear import Linear
from collm.agents.decoding.decoder import Decoder, Prompt
from collm.agents.decoding.sampling import Sampling

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@pytest.fixture
def multiplied(monkeypatch):
    """Shapes of oneDNN's matmuls."""
    shapes = []
    own = onednn_linear.multiply

    def counted(x, weight, bias):
        shapes.append((tuple(x.shape), tuple(weight.shape)))
        return own(x, weight, bias)

    monkeypatch.setattr(onednn_linear, "multiply", counted)
    monkeypatch.setattr(onednn_linear, "MIN_PRODUCTS", 1)
    return shapes


def pair(inputs, outputs, bias):
    torch.manual_seed(0)
    plain = nn.Linear(inputs, outputs, bias=bias)
    ours = Linear(inputs, outputs, bias=bias)
    ours.load_state_dict(plain.state_dict())
    return plain, ours


def viewed(name):
    x = torch.randn(40, 6, 24, generator=torch.Generator().manual_seed(1))
    flat = {"rows": x[:, 0].contiguous(), "transposed": x[:, 0].T.contiguous().T}
    return (flat | {"strided": x[:, -1:], "expanded": x[:1].expand(40, 6, 24), "three axes": x})[name]


def test_outputs_may_be_changed_in_place(multiplied):
    gradients = []
    for layer in pair(24, 56, True):
        x = viewed("three axes").detach().requires_grad_()
        y = layer(x)
        y += 1
        y.square().sum().backward()
        gradients.append(x.grad)
    assert multiplied
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["rows", "strided", "transposed", "expanded", "three axes"])
@pytest.mark.parametrize("slope", ["random", "one"])
def test_products_and_gradients_are_torchs(multiplied, bias, name, slope):
    results = []
    for layer in pair(24, 56, bias):
        x = viewed(name).detach().requires_grad_()
        y = layer(x)
        random = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
        y.backward(random if slope == "random" else torch.ones(()).expand(y.shape))
        results.append([y.detach(), x.grad, *(each.grad for each in layer.parameters())])
    assert len(multiplied) == 2  # forward, and backward by x
    for plain, ours in zip(*results, strict=True):
        assert plain.shape == ours.shape
        torch.testing.assert_close(ours, plain, atol=2e-5, rtol=1e-4)


def test_only_gradients_that_are_wanted_are_made(multiplied):
    _, layer = pair(24, 56, True)
    layer.requires_grad_(False)
    x = viewed("rows").requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and layer.weight.grad is None and layer.bias.grad is None
    layer.requires_grad_(True)
    layer(x.detach()).sum().backward()
    assert len(multiplied) == 3 and layer.weight.grad is not None


@pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN:UserWarning")  # torch warns about `flags`
def test_other_types_small_products_and_a_switch_are_torchs(multiplied):
    _, layer = pair(24, 56, True)
    x = viewed("rows")
    layer(x[:1])
    layer.double()(x.double())
    layer.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        layer(x)
    copy.deepcopy(layer).to("meta")(x.to("meta"))
    assert multiplied == []
    layer(x)
    assert multiplied == [((40, 24), (56, 24))]


@pytest.mark.parametrize("is_faster", [True, False])
def test_a_model_stays_what_it_was(monkeypatch, is_faster):
    monkeypatch.setattr(patching, "is_onednn_faster", lambda: is_faster)
    model, ids = model_of("llama"), torch.arange(80)[None].repeat(2, 1)
    before, names = model(ids).logits, list(model.state_dict())
    patch_layers(model)
    patch_layers(model)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert all(type(layer) is (Linear if is_faster else nn.Linear) and is_plain_linear(layer) for layer in layers)
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert list(twin.state_dict()) == names
        torch.testing.assert_close(twin(ids).logits, before, atol=1e-4, rtol=1e-4)


def test_packed_weights_are_multiplied_by_in_their_block_alone(multiplied, monkeypatch):
    monkeypatch.setattr(onednn_linear, "MIN_PACKED", 24 * 56)
    plain, layer = pair(24, 56, True)
    small = Linear(24, 55)
    x = viewed("three axes")
    with torch.inference_mode(), packed_weights(nn.ModuleList([layer, small, plain])):
        assert layer.packed is not None and layer.packed.is_mkldnn and small.packed is None
        for given in (x, x[:1, :1], viewed("strided")):
            torch.testing.assert_close(layer(given), plain(given), atol=2e-5, rtol=1e-4)
        assert len(multiplied) == 3
    assert layer.packed is None and list(layer.state_dict()) == ["weight", "bias"]
    with pytest.raises(KeyError), packed_weights(layer):
        layer(x).sum().backward()  # a gradient is by the weights themselves
        raise KeyError
    assert layer.weight.grad is not None and layer.packed is None


@torch.inference_mode()
def test_packed_weights_are_those_of_now(multiplied, monkeypatch):
    monkeypatch.setattr(onednn_linear, "MIN_PACKED", 1)
    plain, layer = pair(24, 56, False)
    x = viewed("rows")
    for _ in range(2):
        with packed_weights(layer):
            torch.testing.assert_close(layer(x), plain(x), atol=2e-5, rtol=1e-4)
        for each in (plain, layer):
            each.weight.data.mul_(-2)


def test_decoding_packs_where_that_gains(multiplied, monkeypatch):
    monkeypatch.setattr(patching, "is_onednn_faster", lambda: True)
    monkeypatch.setattr(onednn_linear, "MIN_PACKED", 1)
    model = model_of("llama")
    decoder, packs = Decoder(model, stop_ids=[]), []
    own = decoding.packed_weights
    monkeypatch.setattr(decoding, "packed_weights", lambda base: packs.append(base) or own(base))

    def generate(rows, tokens):
        return decoder.generate([Prompt([3 + row, 4, 5], (row,), tokens) for row in range(rows)], Sampling())

    generate(2, 40), generate(3, 31)
    assert packs == []
    packed = generate(3, 32)
    assert packs == [model]
    monkeypatch.setattr(decoding, "packed_weights", lambda base: nullcontext())
    for one, other in zip(packed, generate(3, 32), strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_layers_of_other_kinds_small_products_and_a_switch_are_left(monkeypatch):
    class Own(nn.Linear):
        pass

    monkeypatch.setattr(onednn_linear, "processor", lambda: "AuthenticAMD")
    assert onednn_linear.is_onednn_faster()
    model = nn.Sequential(Own(2, 2), nn.Linear(2, 2))
    patch_layers(model)
    assert [type(layer) for layer in model] == [Own, Linear] and not is_plain_linear(model[0])
    assert not onednn_linear._is_large(torch.zeros(64, 100), torch.zeros(100, 100))
    assert onednn_linear._is_large(torch.zeros(64, 2000), torch.zeros(100, 2000))
    monkeypatch.setenv(SWITCH, "0")
    assert not onednn_linear.is_onednn_faster()
