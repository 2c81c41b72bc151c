"""Models of Hugging Face transformers from a configuration: random weights, nothing downloaded.

`hf:LlamaConfig?num_hidden_layers=4&hidden_size=256`: a configuration class by name with its settings,
and two sizes of ours, `batch` and `seq_len`. What is not set keeps the configuration's default. Covers
what has a language-model head: masked (BERT), causal (Llama, GPT-2), sequence to sequence (T5).
"""

from collections.abc import Callable
from typing import Any

import psutil
import torch

from ..errors import InputError
from ..gates import megabytes
from ..settings import OwnSettings
from .extras import check_nothing_fetched, import_extra
from .own import Made, OwnModel, default_loss, seeded, template
from .registered import settings_of

HEADS = ("AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM")
CHECK_COPIES = 40
"""What a check holds at its peak, in times the weights: it keeps several steps; 26 to 36 were seen."""
STATE_COPIES = 4
"""What an update holds: parameters, gradients and AdamW's two moments."""


def hf_model(own: OwnSettings, seed: int, device: torch.device, copies: int = STATE_COPIES) -> OwnModel:
    """The model that a name such as `hf:GPT2Config` stands for; raises InputError with one line.

    `copies` is how many times the weights will be held: what cannot fit is refused. The device `meta`
    makes a model without memory.
    """
    name = own.name
    batch, length = own.batch, own.seq_len
    assert batch is not None
    assert length is not None
    what, settings = settings_of(name)
    check_nothing_fetched(name, settings)
    library = import_extra("transformers", name)
    library.logging.set_verbosity_error()  # what it says of its own defaults helps nobody here
    config = _config(name, library, what, settings)
    head = _head(name, library, config)
    most = getattr(config, "max_position_embeddings", length)
    if length > most:
        raise InputError(f"{name}: seq_len {length} is above max_position_embeddings {most}")

    def make() -> Any:
        try:
            return head.from_config(config)
        except Exception as error:  # whatever a model of theirs says of settings that cannot be
            raise InputError(f"{name}: {' '.join(str(error).split())[:200]}") from None

    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in make().parameters())
    needed, there = 4 * parameters * copies, psutil.virtual_memory().total
    if device.type == "cpu" and needed > there:
        work = "a check" if copies == CHECK_COPIES else "an update"
        raise InputError(
            f"{name}: {parameters / 1e9:.1f} billion parameters; {work} takes at least "
            f"{megabytes(needed)}, and this machine has {megabytes(there)}; set smaller sizes, such as "
            "?num_hidden_layers=2&hidden_size=128"
        )
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise InputError(f"{name}: {what} has no vocabulary of its own; give your own model as own:NAME")
    ids = torch.randint(config.vocab_size, (batch, length), generator=generator).to(device)
    inputs = {"input_ids": ids, "labels": ids}

    def placed() -> Any:
        if device.type == "meta":
            with device:
                model = make()
            model.forward = _unpacked(library, model.forward)
            return model
        return make() if device.type == "cpu" else make().to(device)

    return OwnModel(
        build=template(placed, seed),
        once=lambda: Made(seeded(placed, seed)(), inputs, default_loss),
        tokens=batch * length,
        inputs=inputs,
        loss_fn=default_loss,
        batch_words=f"{parameters / 1e6:,.1f} million parameters; {batch} sequences of {length} seeded "
        "token ids, which are their own labels",
    )


def _unpacked(library: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    """A forward that knows, without reading values, that no sequences of our batches are packed.

    Without values transformers takes them for packed, and makes masks that the real model does not.
    """
    masks = library.masking_utils

    def unpacked(*args: Any, **kwargs: Any) -> Any:
        finds = masks.find_packed_sequence_indices
        masks.find_packed_sequence_indices = lambda *_, **__: None
        try:
            return forward(*args, **kwargs)
        finally:
            masks.find_packed_sequence_indices = finds

    return unpacked


def _config(name: str, library: Any, what: str, settings: dict[str, Any]) -> Any:
    """The configuration, caches off; a setting that it does not have is refused and not ignored."""
    found = getattr(library, what, None) if what.isidentifier() else None
    if not isinstance(found, type) or not issubclass(found, library.PreTrainedConfig):
        raise InputError(
            f"{name}: transformers has no configuration {what!r}; examples are LlamaConfig, BertConfig "
            "and GPT2Config"
        )
    cls: Any = found
    try:
        known = {*vars(cls()), *cls.attribute_map, "attn_implementation"}
        unknown = next((key for key in settings if key not in known), None)
        if unknown is not None:
            raise InputError(f"{name}: {what} has no setting {unknown!r}")
        return cls(**{"use_cache": False, **settings})
    except InputError:
        raise
    except Exception as error:  # strict configurations have errors of their own
        raise InputError(f"{name}: {' '.join(str(error).split())[:200]}") from None


def _head(name: str, library: Any, config: Any) -> Any:
    """The class that builds the model with its language-model head."""
    for head in (getattr(library, each) for each in HEADS):
        if type(config) in head._model_mapping:
            return head
    raise InputError(
        f"{name}: transformers has no language-model head for it; give your own model with --workload "
        "package.module:function"
    )
