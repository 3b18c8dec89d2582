"""`Fiction`: made-up rows, from a source of chance. The same chance, the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

from tripstore.demo.legacy.models.base import ADJUSTMENT_REASONS, BILLING_RESULTS, NOTE_KINDS

#: A row to be written: values by column.
Row = dict[str, object]

#: Halloween, a year before the migration.
FIRST_DAY = datetime(2013, 10, 31, tzinfo=UTC)
DAYS = 365

PRODUCTS = ("standard", "large", "luxury", "taxi")
TAGS = ("airport", "promo", "naïve", "two words", 'quoted "tag"', "back\\slash", "comma,comma", "{braces}", "")
WORDS = (
    "left",
    "my",
    "phone",
    "in",
    "the",
    "car",
    "великолепно",
    "すごい",
    "🚕",
    "it's",
    "100%",
    "tab\t",
    "line\n",
    "\\N",
    "",
)
KILOMETRES = (0.1 + 0.2, 1e-7, 3.0, 5.4e22, 12345.678901234567)


class Fiction:
    """Makes rows. `riders`, `drivers` and `cities` are the ids to choose from."""

    def __init__(
        self, random: Random, riders: Sequence[int], drivers: Sequence[int], cities: Mapping[int, str]
    ) -> None:
        self._random = random
        self._riders = riders
        self._drivers = drivers
        self._cities = list(cities.items())

    def requested_trip(self, at: datetime | None = None) -> Row:
        """A trip as the rider asks for it."""
        city, currency = self._random.choice(self._cities)
        at = at or self.moment()
        return {
            "rider_id": self._random.choice(self._riders),
            "driver_id": None,
            "city_id": city,
            "status": "requested",
            "product": self._random.choice(PRODUCTS),
            "request_at": at,
            "local_date": at.date(),
            "currency": currency,
            "surge": self._maybe(Decimal(self._random.randint(100, 500)) / 100),
            "passengers": self._maybe(self._random.randint(1, 8)),
            "is_shared": self._random.random() < 0.2,
            "tags": self._maybe(self.tags()),
            "client": self._maybe(self.document()),
            "request_ip": f"10.{self._random.randint(0, 255)}.{self._random.randint(0, 255)}.1",
        }

    def accepted_trip(self) -> Row:
        """What is known when a driver comes."""
        return {"status": "accepted", "driver_id": self._random.choice(self._drivers)}

    def completed_trip(self, requested_at: datetime) -> Row:
        """What is known at the drop-off."""
        begin = requested_at + timedelta(
            seconds=self._random.randint(60, 900), microseconds=self._random.randint(0, 999)
        )
        seconds = self._random.randint(120, 5400)
        legs = [
            round(self._random.uniform(0, 20), self._random.randint(0, 15)) for _ in range(self._random.randint(0, 4))
        ]
        return {
            "status": "completed",
            "begin_at": begin,
            "dropoff_at": begin + timedelta(seconds=seconds),
            "duration_seconds": seconds,
            "fare_amount": self.money(),
            "tip_amount": self._maybe(self.money()),
            "distance_km": self._random.choice((*KILOMETRES, self._random.uniform(0, 40))),
            "leg_km": self._maybe(legs),
            "route": self._maybe(self.document()),
            "signature": self._maybe(self._random.randbytes(self._random.randint(0, 64))),
        }

    def whole_trip(self) -> Row:
        """A trip that is reported after it is over."""
        at = self.moment()
        return self.requested_trip(at) | self.accepted_trip() | self.completed_trip(at)

    def attempt(self, number: int) -> Row:
        result = self._random.choice(BILLING_RESULTS)
        return {
            "attempt_no": number,
            "result": result,
            "amount": self.money(),
            "currency": self._random.choice(self._cities)[1],
            "payment_profile": self._maybe(f"card-{self._random.randint(1000, 9999)}"),
            "processor_response": self._maybe(self.document()),
            "error_codes": None if result == "captured" else self._random.sample(("51", "05", "é", "N/A"), 2),
            "attempted_at": self.moment(),
        }

    def note(self, number: int) -> Row:
        return {
            "n": number,
            "kind": self._random.choice(NOTE_KINDS),
            "author_id": self._maybe(self._random.choice(self._riders)),
            "text": self.text(),
            "rating": self._maybe(self._random.randint(1, 5)),
            "is_public": self._maybe(self._random.random() < 0.5),
            "tags": self._maybe(self.tags()),
            "attachment": self._maybe(self._random.randbytes(self._random.randint(0, 32))),
            "context": self._maybe(self.document()),
            "written_at": self.moment(),
        }

    def adjustment(self, number: int) -> Row:
        return {
            "n": number,
            "amount": self.money() - 100,
            "currency": self._random.choice(self._cities)[1],
            "reason": self._random.choice(ADJUSTMENT_REASONS),
            "explanation": self._maybe(self.text()),
            "is_approved": False,
            "effective_on": self._maybe(self.moment().date()),
            "line_items": self._maybe(self.document()),
            "proposed_at": self.moment(),
        }

    def event(self) -> Row:
        kind = f"{self._random.choice(('seen', 'moved', 'stopped'))}-{self._random.getrandbits(48):x}"
        return {"happened_at": self.moment(), "kind": kind, "details": self.document()}

    def rider(self) -> int:
        return self._random.choice(self._riders)

    def driver(self) -> int:
        return self._random.choice(self._drivers)

    def moment(self) -> datetime:
        return FIRST_DAY + timedelta(microseconds=self._random.randrange(DAYS * 86_400_000_000))

    def money(self) -> Decimal:
        return Decimal(self._random.randint(0, 25_000)) / 100

    def text(self) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(0, 12)))

    def tags(self) -> list[str]:
        return self._random.sample(TAGS, self._random.randint(0, 3))

    def document(self) -> Row:
        """What an app or another company's service sent: keys in no order, text in all scripts."""
        return {
            "version": self._random.choice(("1.2", "1.10", "2")),
            "device": {"zoom": self._random.uniform(0, 1), "id": self._random.getrandbits(53), "ok": True},
            "a note": self.text(),
            "list": [None, self._random.randint(-9, 9), []],
        }

    def _maybe(self, value: object) -> object:
        """The value, or nothing: columns that may be NULL are so often enough."""
        return value if self._random.random() < 0.7 else None
