"""Presets, YAML files, --set and --sweep become one checked specification, or one line of error."""

from pathlib import Path

import pytest

from recompute_core.asking import asked, assign
from recompute_core.errors import InputError


def test_a_size_that_is_set_replaces_the_preset_s_shapes() -> None:
    spec = asked("gpt-sweep", None, ("workload.seq_len=64",), ())
    assert [spec.at(shape).seq_len for shape in spec.shapes] == [64]


def test_setting_one_size_keeps_the_other_of_each_shape() -> None:
    raw = {"shapes": [{"seq_len": 8, "batch": 1}, {"seq_len": 16, "batch": 1}]}
    assign(raw, "workload.batch=4")
    assert raw["shapes"] == [{"seq_len": 8}, {"seq_len": 16}]


def test_sweep_blocks_is_the_selective_curve() -> None:
    spec = asked("quick", None, ("workload.blocks=3",), ("blocks",))
    assert spec.plans == ("blocks:0", "blocks:0,1", "blocks:0,1,2")


def test_sweep_of_a_size_makes_one_shape_a_value() -> None:
    spec = asked("quick", None, (), ("seq_len=16,32",))
    assert spec.shapes == ({"seq_len": 16}, {"seq_len": 32})


def test_a_file_and_its_relative_photo_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text("workload: {name: receipts, images: photos}\n")
    spec = asked(None, Path("spec.yaml"), (), ())
    assert spec.workload.images == str(tmp_path / "photos")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n- b\n", "expected a mapping of settings, got list"),
        ("just text", "expected a mapping of settings, got str"),
        ("", "expected a mapping of settings, got NoneType"),
        ("a: [", "not YAML"),
        (
            "workload: {name: gpt, seq_len: 0}",
            "workload.seq_len: input should be greater than or equal to 1",
        ),
        ("thresholds: {peak_ratio: .nan}", "thresholds.peak_ratio"),
        ("plans: [every-block, every-block]", "each plan may be named once"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_a_bad_file_gets_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        asked(None, tmp_path / "bad.yaml", (), ())
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_binary_file_and_a_missing_one_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "photo.yaml").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(InputError, match="not a text file"):
        asked(None, tmp_path / "photo.yaml", (), ())
    with pytest.raises(InputError, match="cannot be read: No such file"):
        asked(None, tmp_path / "none.yaml", (), ())


@pytest.mark.parametrize(
    ("settings", "sweeps", "says"),
    [
        (("seq_len",), (), "expected path=value"),
        (("=3",), (), "expected path=value"),
        (("workload.seq_len={",), (), "not YAML"),
        (("workload.seq_len=2026-13-45",), (), "not YAML: month must be in 1..12"),
        (("seed=!!bool x",), (), "not YAML"),
        (("seed=" + "9" * 6000,), (), "a number of 6000 letters"),
        (("workload={name: receipts, images: ~nosuchuser/x}", "shapes=[{}]"), (), "workload.images"),
        ((), ("seq_len=[",), "not YAML"),
        (("timing.min_pairs.deeper=3",), (), "min_pairs has no settings below it"),
        (("workload.seqlen=3",), (), "workload.seqlen: no such setting"),
        (("workload=unheard-of",), (), "unknown workload 'unheard-of'; known: gpt, receipts"),
        ((), ("seq_len",), "expected blocks, or a size with its values"),
        ((), ("seq_len=a,b",), "seq_len"),
        ((), ("width=64,128",), "gpt has no size 'width'; it has seq_len, batch"),
    ],
)
def test_a_bad_setting_gets_one_line(
    settings: tuple[str, ...], sweeps: tuple[str, ...], says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        asked("quick", None, settings, sweeps)
    assert "\n" not in str(caught.value)


def test_a_preset_or_a_file_but_not_both() -> None:
    with pytest.raises(InputError, match="give either --preset NAME or a file"):
        asked("quick", Path("x.yaml"), (), ())
    with pytest.raises(InputError, match=r"give --preset NAME, a file SPEC\.yaml or --workload NAME"):
        asked(None, None, (), ())


def test_another_model_brings_its_own_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = asked("quick", None, ("workload.batch=8",), (), "hf:LlamaConfig?seq_len=32")
    assert (spec.workload.name, spec.shapes, spec.threads) == ("hf:LlamaConfig", ({},), 1)
    assert spec.at({}).model_dump(include={"batch", "seq_len"}) == {"batch": 8, "seq_len": 32}
    assert asked(None, None, (), (), "receipts").workload.name == "receipts"
    monkeypatch.setenv("RECOMPUTE_WORKLOADS", "")
    assert asked(None, None, (), (), "a.b:make").workload.name == "own:a.b:make"
    with pytest.raises(InputError, match="unknown workload 'gtp'"):
        asked("quick", None, (), (), "gtp")


def test_bad_presets() -> None:
    with pytest.raises(InputError, match="unknown preset 'slow'; known: quick, gpt-sweep, receipt"):
        asked("slow", None, (), ())
