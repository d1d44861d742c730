"""The warehouse world: customers, products, prices over time and sales. Types only.

Money is in integer cents, dates are ISO text, every identity is text.
"""

from __future__ import annotations

from dataclasses import dataclass

REGIONS = ("north", "south", "east", "west")
SEGMENTS = ("retail", "trade", "public")
CATEGORIES = ("tools", "garden", "paint", "lighting", "plumbing")
CHANNELS = ("store", "phone", "web")


@dataclass(frozen=True, slots=True)
class Customer:
    """Somebody who buys; (name, joined) is unique, too."""

    id: str
    name: str
    region: str
    segment: str
    joined: str


@dataclass(frozen=True, slots=True)
class Contact:
    """What the contact system once noted of a customer: possibly out of date."""

    customer: str
    region: str
    segment: str


@dataclass(frozen=True, slots=True)
class Product:
    """What is sold; cost in cents a unit."""

    id: str
    name: str
    category: str
    cost: int


@dataclass(frozen=True, slots=True)
class Price:
    """The list price of a product, in cents, from a day on until the next entry."""

    product: str
    since: str
    cents: int


@dataclass(frozen=True, slots=True)
class Sale:
    """One line of a receipt; price in cents a unit. A void sale was taken back and counts for nothing."""

    id: str
    day: str
    customer: str
    product: str
    quantity: int
    price: int
    channel: str
    void: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """How a partition may be laid out: seven column names in the order of the base layout, date and money format."""

    name: str
    columns: tuple[str, ...]
    dates: str
    money: str


@dataclass(frozen=True, slots=True)
class Partition:
    """The file of a month's sales: path below input/, month as YYYY-MM."""

    month: str
    path: str


@dataclass(frozen=True, slots=True)
class Alias:
    """A spelling of a category that some system uses, and what it stands for."""

    field: str
    spelling: str
    value: str


@dataclass(frozen=True, slots=True)
class Warehouse:
    """The whole truth. Customers, products and prices are sorted by identity, sales by (day, id)."""

    store: str
    customers: tuple[Customer, ...]
    contacts: tuple[Contact, ...]
    products: tuple[Product, ...]
    prices: tuple[Price, ...]
    sales: tuple[Sale, ...]
    aliases: tuple[Alias, ...]
    layouts: tuple[Layout, ...]
    partitions: tuple[Partition, ...]
