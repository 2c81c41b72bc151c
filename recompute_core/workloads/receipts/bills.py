"""What a receipt says: a shop, a time, and items that add up. Money is whole cents."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from .seeds import stream

SHOPS = (
    ("Corner Grocer", "12 Mill Lane"),
    ("Harbour Tea Room", "3 Quay Street"),
    ("Fern & Daughters", "88 High Street"),
    ("Northgate Books", "5 Northgate"),
    ("Bakehouse 41", "41 Oven Row"),
    ("The Hardware Shop", "7 Forge Road"),
    ("Green Pharmacy", "20 Abbey Walk"),
    ("Station Kiosk", "Platform 2"),
)
GOODS = (
    ("Bread", 280), ("Oat milk", 195), ("Coffee", 340), ("Apples", 225), ("Cheese", 490),
    ("Notebook", 375), ("Batteries", 640), ("Soap", 150), ("Tea", 310), ("Rice", 265),
    ("Olive oil", 895), ("Pasta", 135), ("Novel", 1099), ("Candle", 450), ("Tape", 199),
    ("Plasters", 285), ("Juice", 230), ("Lamp bulb", 520), ("Scone", 175), ("Honey", 610),
)  # fmt: skip
TAX_PERMILLE = (50, 80, 100, 200)


@dataclass(frozen=True)
class Item:
    name: str
    quantity: int
    unit_cents: int

    @property
    def cents(self) -> int:
        return self.quantity * self.unit_cents


@dataclass(frozen=True)
class Bill:
    """The text of one receipt."""

    shop: str
    street: str
    at: datetime
    number: int
    items: tuple[Item, ...]
    tax_permille: int

    @property
    def subtotal_cents(self) -> int:
        return sum(item.cents for item in self.items)

    @property
    def tax_cents(self) -> int:
        """Tax on the subtotal, a half cent rounded up."""
        return (self.subtotal_cents * self.tax_permille + 500) // 1000

    @property
    def total_cents(self) -> int:
        return self.subtotal_cents + self.tax_cents


def bill_of(receipt: int) -> Bill:
    """The bill of a receipt number."""
    rng = stream("bill", receipt)
    shop, street = SHOPS[rng.integers(len(SHOPS))]
    chosen = rng.permutation(len(GOODS))[: rng.integers(3, 7)]
    return Bill(
        shop=shop,
        street=street,
        at=datetime(2026, 1, 1, 8) + timedelta(minutes=int(rng.integers(250 * 24 * 60))),
        number=receipt,
        items=tuple(
            Item(
                name=GOODS[good][0],
                quantity=int(rng.integers(1, 4)),
                unit_cents=GOODS[good][1] + 5 * int(rng.integers(-6, 7)),
            )
            for good in chosen
        ),
        tax_permille=int(rng.choice(TAX_PERMILLE)),
    )


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
