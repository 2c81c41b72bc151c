"""Models of timm by name: random weights, nothing downloaded.

`timm:vit_tiny_patch16_224?depth=2`: what `timm.create_model` knows, with its settings, and `batch`,
which is ours. Images and labels are seeded, the loss is cross entropy.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import InputError
from ..settings import OwnSettings
from .extras import check_nothing_fetched, import_extra
from .own import Made, OwnModel, seeded, template
from .registered import settings_of, whole


def timm_model(own: OwnSettings, seed: int, device: torch.device) -> OwnModel:
    """The model that a name such as `timm:resnet18` stands for; raises InputError with one line."""
    name, batch = own.name, own.batch
    assert batch is not None
    what, settings = settings_of(name)
    for key in settings.keys() & {"num_classes", "in_chans"}:
        whole(name, key, settings[key])
    size = _size(name, settings["img_size"]) if "img_size" in settings else None
    check_nothing_fetched(name, settings)
    timm = import_extra("timm", name)
    for key in settings.keys() & _not_a_models(timm):
        raise InputError(
            f"{name}: {key}: is no setting of a model; weights are random, nothing is loaded"
        )
    if not timm.is_model(what):
        near = ", ".join(timm.list_models(f"*{what[:6]}*")[:3])
        raise InputError(f"{name}: timm has no model {what!r}" + (f"; it has {near}" if near else ""))

    def make() -> Any:
        try:
            model = timm.create_model(what, pretrained=False, **settings)
            return model if device.type == "cpu" else model.to(device)
        except Exception as error:  # whatever a model of theirs says of settings that cannot be
            raise InputError(f"{name}: {' '.join(str(error).split())[:200]}") from None

    build = template(make, seed)
    model: Any = build()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if getattr(model, "num_classes", 0) < 1:
        raise InputError(f"{name}: the model has no classes of its own; set ?num_classes=10")
    channels, *usual = model.default_cfg["input_size"]
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, settings.get("in_chans", channels), *(size or usual))
    images = torch.randn(shape, generator=generator).to(device)
    labels = torch.randint(model.num_classes, (batch,), generator=generator).to(device)
    loss = _cross_entropy(labels)
    return OwnModel(
        build=build,
        once=lambda: Made(seeded(make, seed)(), (images,), loss),
        inputs=(images,),
        loss_fn=loss,
        batch_words=f"{parameters / 1e6:,.1f} million parameters; {batch} seeded images of "
        f"{'x'.join(map(str, shape[1:]))}; the loss is cross entropy",
    )


def _not_a_models(timm: Any) -> set[str]:
    """What `timm.create_model` takes for itself: files, caches, weights."""
    return {*inspect.signature(timm.create_model).parameters, "features_only", "kwargs"} - {
        "num_classes"
    }


def _size(name: str, value: Any) -> list[int]:
    """Height and width of the images: one number for both, or a pair."""
    pair = value if isinstance(value, list) else [value, value]
    if len(pair) != 2:
        raise InputError(f"{name}: img_size: expected one size or two, got {value!r}")
    return [whole(name, "img_size", one) for one in pair]


def _cross_entropy(labels: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda output: F.cross_entropy(output, labels)
