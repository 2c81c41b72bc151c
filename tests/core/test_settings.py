"""Settings of somebody's own model: sizes in its name, sizes it has, and what its blocks are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recompute_core.errors import InputError
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.plans.names import named_regions
from recompute_core.settings import Anatomy, OwnSettings, shape_key, size_fields
from recompute_core.spec import StudySpec, parse_spec

TWO = Anatomy(
    names=("h.0", "h.1"), norms=("ln",), attention="attn", matmuls=("attn.q",), others=("drop",)
)


@pytest.mark.parametrize(
    ("name", "kept", "batch", "seq_len", "key", "sizes"),
    [
        ("hf:LlamaConfig", "hf:LlamaConfig", 2, 64, "T=64 B=2", ("seq_len", "batch")),
        ("hf:A?x=1&batch=4&seq_len=9", "hf:A?x=1", 4, 9, "T=9 B=4", ("seq_len", "batch")),
        ("timm:vit?batch=3&depth=2", "timm:vit?depth=2", 3, None, "B=3", ("batch",)),
        ("timm:vit?seq_len=3", "timm:vit?seq_len=3", 2, None, "B=2", ("batch",)),  # timm will say
        ("own:mine", "own:mine", None, None, "own batch", ()),
        ("own:a.b:c", "own:a.b:c", None, None, "own batch", ()),
    ],
)
def test_sizes_in_a_name_are_sizes(
    name: str, kept: str, batch: int, seq_len: int | None, key: str, sizes: tuple[str, ...]
) -> None:
    own = OwnSettings(name=name)
    assert (own.name, own.batch, own.seq_len) == (kept, batch, seq_len)
    assert (shape_key(own), size_fields(own)) == (key, sizes)
    assert OwnSettings.model_validate(own.model_dump()) == own


def test_a_size_given_beside_the_name_wins() -> None:
    assert OwnSettings(name="hf:A?batch=4", batch=8).batch == 8
    assert parse_spec({"workload": "hf:A?batch=4", "shapes": [{"batch": 8}]}).at({"batch": 8}).batch == 8


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({"workload": "hf:A?batch=0"}, "workload.batch: input should be greater than or equal to 1"),
        ({"workload": "hf:A?batch=two"}, "workload.batch: input should be a valid integer"),
        ({"workload": {"name": "timm:a", "seq_len": 4}}, "workload.seq_len: timm:a has no such size"),
        ({"workload": {"name": "own:a", "batch": 4}}, "workload.batch: own:a has no such size"),
        ({"workload": "own:a", "shapes": [{"batch": 4}]}, "own:a has no size 'batch'; it has none"),
        ({"workload": "hf:a b"}, "workload.name: string should match pattern"),
        ({"workload": "hf:A", "shapes": [{}, {"batch": 2}]}, "shapes: two of them are the same"),
        ({"workload": "hg:A"}, "unknown workload 'hg:A'; known: gpt, receipts, hf:CONFIG"),
        ({"workload": {"name": "hf:A", "blocks": ["a b"]}}, "workload.blocks[0]: string should match"),
    ],
)
def test_what_cannot_be_is_one_line(raw: dict[str, object], says: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_spec(raw)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@given(st.text(max_size=60))
def test_any_name_is_taken_or_refused(text: str) -> None:
    for name in (text, f"hf:{text}", f"own:{text}"):
        try:
            own = OwnSettings(name=name)
        except ValidationError:
            continue
        assert OwnSettings.model_validate_json(own.model_dump_json()) == own


def test_blocks_are_not_known_before_a_look() -> None:
    own = OwnSettings(name="hf:LlamaConfig")
    with pytest.raises(InputError, match="the blocks of hf:LlamaConfig are not known yet"):
        anatomy_of(own)
    seen = own.model_copy(update={"anatomy": TWO})
    assert anatomy_of(seen) is TWO
    spec = StudySpec(workload=seen)
    assert parse_spec(spec.model_dump(mode="json")) == spec


def test_parts_that_are_not_known_are_refused_by_name() -> None:
    assert [r.modules for r in named_regions("attention", TWO)] == [("h.0.attn",), ("h.1.attn",)]
    for plan, part in (("mlp", "MLP"), ("attention-mlp-apart", "MLP"), ("nested", "MLP")):
        with pytest.raises(
            InputError, match=f"plan '{plan}': no part of every block is known as its {part}"
        ):
            named_regions(plan, TWO)
    bare = Anatomy(names=("h.0", "h.1"))
    for plan, part in (("norms", "norms"), ("megatron-core-attn", "attention")):
        with pytest.raises(
            InputError, match=f"plan '{plan}': no part of every block is known as its {part}"
        ):
            named_regions(plan, bare)
    assert len(named_regions("keep-attention", bare)) == 2


def test_an_anatomy_knows_its_modules() -> None:
    known = ("h.0", "h.1", "h.0.ln", "h.1.attn", "h.0.attn.q", "h.1.drop")
    assert all(map(TWO.has, known))
    assert not any(map(TWO.has, ("h", "h.2", "h.0.mlp", "attn", "h.0.")))
