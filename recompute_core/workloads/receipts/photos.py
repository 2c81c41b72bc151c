"""A phone's photo of a receipt, made with kornia: where it lies, the light, and what went wrong.

A few photos are of no use, and an intake step rejected them, with a reason (`rejection`).

Each photo draws from a stream named by receipt and photo number and is made alone, on one thread,
so that a photo made again by itself has the same bits on the same machine. Across machines or
library versions the bits may differ. No colour and no JPEG: the encoder sees grey pixels.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import kornia
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from .labels import LABELS, REASONS, Label, Reason
from .paper import Paper, is_torn, paper_of
from .seeds import stream

HEIGHT, WIDTH = 192, 96
FINE = 2
"""The scene is composed this many times finer than the photo."""
H, W = HEIGHT * FINE, WIDTH * FINE
CHOICE: dict[Label, float] = {
    "ok": 0.28, "blurry": 0.18, "faint": 0.18, "glare": 0.18, "cutoff": 0.18,
}  # fmt: skip
"""How often each class is chosen for a photo of a whole receipt."""
REJECTED = 0.04
"""Share of photos that the intake step rejected, each reason as often."""


def photo_count(receipt: int) -> int:
    """Photos taken of a receipt: 2 to 4."""
    return int(stream("count", receipt).integers(2, 5))


def label_of(receipt: int, photo: int) -> Label:
    """The class of a photo; every photo of a torn receipt is torn."""
    if is_torn(receipt):
        return "torn"
    names = list(CHOICE)
    return names[stream("label", receipt, photo).choice(len(names), p=list(CHOICE.values()))]


def rejection(receipt: int, photo: int) -> Reason | None:
    """Why the intake step rejected a photo, or None: it never does a torn receipt's first."""
    rng = stream("intake", receipt, photo)
    if rng.random() >= REJECTED or (photo == 0 and is_torn(receipt)):
        return None
    return REASONS[rng.integers(len(REASONS))]


def recorded_label(receipt: int, photo: int) -> Label:
    """The class in the manifest: another than the photo's where it was rejected for that."""
    label = label_of(receipt, photo)
    if rejection(receipt, photo) != "wrong label":
        return label
    others = [other for other in LABELS if other != label]
    return others[stream("mistake", receipt, photo).integers(len(others))]


def take(receipt: int, photo: int, paper: Paper | None = None) -> NDArray[np.uint8]:
    """Photo number `photo` of `receipt`, `[HEIGHT, WIDTH]` grey; `paper` saves drawing it again."""
    with one_thread(), torch.no_grad():
        image = expose(
            paper or paper_of(receipt), label_of(receipt, photo), stream("photo", receipt, photo)
        )
    return spoil(image.numpy(), rejection(receipt, photo), stream("spoil", receipt, photo))


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, whatever it was on: how work is cut up changes the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def expose(paper: Paper, label: Label, rng: np.random.Generator) -> Tensor:
    """The photo `[HEIGHT, WIDTH]` in uint8: scene, light, lens, sensor."""
    corners = place(paper.cover.shape, label, rng)
    scene, cover = lay(paper, corners, label, rng)  # [1, 1, H, W] each
    scene = scene * light(rng)
    if label == "glare":
        scene = glare(scene, cover, corners, rng)
    image = focus(F.avg_pool2d(scene, FINE), label, rng)  # [1, 1, HEIGHT, WIDTH]
    noise = rng.standard_normal((HEIGHT, WIDTH), dtype=np.float32) * np.float32(
        rng.uniform(0.006, 0.016)
    )
    image = image[0, 0] + torch.from_numpy(noise)
    return (image.clamp(0, 1) * 255).round().to(torch.uint8)


def place(shape: tuple[int, ...], label: Label, rng: np.random.Generator) -> NDArray[np.float64]:
    """Where the paper's corners fall in the scene: `[4, 2]` as x, y, clockwise from top left.

    A photo holds all there is of the strip, except a cutoff one, taken from too near: a quarter or
    more lies outside.
    """
    height, width = shape
    turn = math.radians(rng.uniform(-9, 9))
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], float) * (width / 2, height / 2)
    corners *= 1 + rng.uniform(-0.04, 0.04, (4, 2))
    corners @= np.array([(math.cos(turn), math.sin(turn)), (-math.sin(turn), math.cos(turn))])
    corners -= corners.min(0)
    near = rng.uniform(0.84, 0.95) if label != "cutoff" else rng.uniform(1.0, 1.3)
    corners *= near * (np.array((W, H)) / corners.max(0)).min()
    size = corners.max(0)  # [2]
    shift = rng.uniform(0.15, 0.85, 2) * ((W, H) - size)
    if label == "cutoff":
        side = int(rng.choice(2, p=(0.35, 0.65)))  # more often above or below than beside
        outside = rng.uniform(0.28, 0.45) * size[side]
        far = (W, H)[side] - size[side] + outside
        shift[side] = rng.choice((-outside, far))
    corners += shift
    return corners


def lay(
    paper: Paper, corners: NDArray[np.float64], label: Label, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """The paper on a table with its shadow, and where it lies, both `[1, 1, H, W]` in 0 to 1."""
    height, width = paper.cover.shape
    if label == "faint":  # thermal print faded, in bands along the roll
        bands = np.interp(np.arange(width), np.linspace(0, width, 9), rng.uniform(0.06, 0.24, 9))
        strength = bands.astype(np.float32)
    else:
        strength = np.full(width, rng.uniform(0.8, 0.97), np.float32)
    curl = 1 + 0.04 * np.sin(np.linspace(0, rng.uniform(2, 7), height) + rng.uniform(0, 6))
    tone = np.float32(rng.uniform(0.86, 0.96)) * curl.astype(np.float32)[:, None]
    tone = tone + (1.1 - tone) * paper.fibre  # bare fibre is whiter than the coated surface
    sheet = np.stack((paper.cover, paper.cover * tone * (1 - strength * paper.ink)))
    source = np.array([[(0, 0), (width, 0), (width, height), (0, height)]], np.float32)
    matrix = kornia.geometry.get_perspective_transform(
        torch.from_numpy(source), torch.from_numpy(corners.astype(np.float32))[None]
    )
    laid = kornia.geometry.warp_perspective(torch.from_numpy(sheet)[None], matrix, (H, W))
    cover, printed = laid.chunk(2, dim=1)
    return table(rng) * (1 - 0.45 * shadow(cover, rng)) * (1 - cover) + printed, cover


def shadow(cover: Tensor, rng: np.random.Generator) -> Tensor:
    """The paper's soft shadow, shifted down and aside: `[1, 1, H, W]`, 1 where it is darkest."""
    coarse = F.avg_pool2d(cover, 4)
    down, right = int(rng.integers(1, 3)), int(rng.choice((-1, 1)))
    coarse = F.pad(coarse, (right, -right, down, -down))
    coarse = kornia.filters.gaussian_blur2d(coarse, (7, 7), (1.5, 1.5))
    return F.interpolate(coarse, (H, W), mode="bilinear", align_corners=False)


def table(rng: np.random.Generator) -> Tensor:
    """What lies under the receipt, `[1, 1, H, W]`: a plain top, wood or a woven cloth."""
    base = rng.uniform(0.12, 0.5)
    kind = rng.integers(3)
    grid = ((8, 4), (5, 48), (6, 3))[kind]
    spread = (0.03, 0.05, 0.02)[kind]
    rough = torch.from_numpy(rng.standard_normal((1, 1, *grid), dtype=np.float32))
    surface = base + spread * F.interpolate(rough, (H, W), mode="bilinear", align_corners=False)
    if kind == 2:
        down, across = torch.arange(H)[:, None], torch.arange(W)[None]
        pitch = rng.uniform(0.35, 0.7)
        surface = surface + 0.04 * torch.sin(pitch * down) * torch.sin(pitch * across)
    return surface.clamp(0.04, 0.7)


def light(rng: np.random.Generator) -> Tensor:
    """Exposure and a gradient across the frame, `[H, W]`; white paper stays short of clipping."""
    angle = rng.uniform(0, 2 * math.pi)
    down, across = torch.linspace(-1, 1, H)[:, None], torch.linspace(-1, 1, W)[None]
    slope = rng.uniform(0.04, 0.16)
    return rng.uniform(0.78, 0.86) * (1 + slope * (math.sin(angle) * down + math.cos(angle) * across))


def glare(
    scene: Tensor, cover: Tensor, corners: NDArray[np.float64], rng: np.random.Generator
) -> Tensor:
    """A lamp's reflection on glossy paper: a burnt-out core and a soft halo, weak on the dull table."""
    u, v = rng.uniform(0.3, 0.7), rng.uniform(0.2, 0.75)
    top, bottom = (1 - u) * corners[0] + u * corners[1], (1 - u) * corners[3] + u * corners[2]
    x, y = (1 - v) * top + v * bottom
    turn, long, short = rng.uniform(0, math.pi), rng.uniform(44, 70), rng.uniform(30, 42)
    down, across = torch.arange(H)[:, None] - y, torch.arange(W)[None] - x
    along = (math.cos(turn) * across + math.sin(turn) * down) / long
    beside = (math.cos(turn) * down - math.sin(turn) * across) / short
    distance = along**2 + beside**2  # [H, W], 1 on the ellipse
    spot = (1.6 * torch.exp(-(distance**1.5))).clamp(max=1) + 0.25 * torch.exp(-distance / 4)
    return (scene + spot.float() * (0.25 + 0.75 * cover)).clamp(max=1)


def focus(image: Tensor, label: Label, rng: np.random.Generator) -> Tensor:
    """The lens: slightly soft, or out of focus or moved in a blurry photo."""
    if label != "blurry":
        sigma = rng.uniform(0.2, 0.45)
        return kornia.filters.gaussian_blur2d(image, (3, 3), (sigma, sigma))
    if rng.random() < 0.5:
        sigma = rng.uniform(1.8, 3)
        return kornia.filters.gaussian_blur2d(image, (19, 19), (sigma, sigma))
    reach = 2 * int(rng.integers(4, 7)) + 1
    return kornia.filters.motion_blur(image, reach, float(rng.uniform(0, 360)), 0.0)


def spoil(
    image: NDArray[np.uint8], reason: Reason | None, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """What the intake step got: a thumbnail enlarged, or a photo of which little is to be seen."""
    if reason == "too small":
        coarse = image.reshape(HEIGHT // 8, 8, WIDTH // 8, 8).mean((1, 3)).round()  # [24, 12]
        thumbnail: NDArray[np.uint8] = coarse.repeat(8, 0).repeat(8, 1).astype(np.uint8)
        return thumbnail
    if reason != "unreadable":
        return image
    if rng.random() < 0.5:  # a finger on the lens: dark, with light at one edge
        edge = np.linspace(1, 0, HEIGHT)[:: rng.choice((-1, 1)), None]  # [HEIGHT, 1]
        dark = 12 + 0.5 * edge ** rng.uniform(3, 6) * image + 6 * rng.random(image.shape)
        return dark.astype(np.uint8)
    bands = np.split(image, HEIGHT // 8)  # a damaged file: its bands moved about and out of order
    return np.concatenate(
        [np.roll(bands[i], rng.integers(WIDTH), 1) for i in rng.permutation(len(bands))]
    )
