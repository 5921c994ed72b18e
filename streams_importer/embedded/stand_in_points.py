"""Charge points made from a seed, in the compact shape of Open Charge Map. Nothing here is copied from it but ids of countries.

Skewed as the real ones are: a few countries hold most points, a few minutes most updates, half of the ids are holes, and about
one point in fifty was created out of the order of its id.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from .stand_in_odd import odd_point


@dataclass(frozen=True, slots=True)
class Country:
    id: int
    iso: str
    title: str
    continent: str
    latitude: float
    longitude: float
    spread: float
    """Degrees around the centre within which its towns lie."""


COUNTRIES = tuple(
    Country(*row)
    for row in (  # the busiest first
        (87, "DE", "Germany", "EU", 50.8, 10.1, 2.6),
        (2, "US", "United States", "NA", 38.9, -97.5, 11.0),
        (1, "GB", "United Kingdom", "EU", 52.7, -1.6, 2.0),
        (80, "FR", "France", "EU", 46.7, 2.6, 3.0),
        (159, "NL", "Netherlands", "EU", 52.2, 5.4, 0.8),
        (210, "ES", "Spain", "EU", 40.1, -3.6, 2.9),
        (112, "IT", "Italy", "EU", 43.6, 11.6, 2.2),
        (168, "NO", "Norway", "EU", 61.4, 9.3, 2.2),
        (216, "SE", "Sweden", "EU", 59.3, 15.0, 2.4),
        (217, "CH", "Switzerland", "EU", 46.9, 8.0, 0.7),
        (26, "BE", "Belgium", "EU", 50.7, 4.5, 0.6),
        (19, "AT", "Austria", "EU", 47.6, 14.0, 0.9),
        (44, "CA", "Canada", "NA", 49.6, -97.0, 14.0),
        (180, "PT", "Portugal", "EU", 39.6, -8.2, 1.0),
        (65, "DK", "Denmark", "EU", 55.9, 9.9, 0.9),
        (79, "FI", "Finland", "EU", 62.1, 25.6, 1.9),
        (18, "AU", "Australia", "OC", -31.5, 146.2, 5.0),
        (179, "PL", "Poland", "EU", 52.0, 19.3, 2.1),
        (3, "IE", "Ireland", "EU", 53.2, -7.6, 1.0),
        (64, "CZ", "Czech Republic", "EU", 49.8, 15.4, 0.9),
        (104, "HU", "Hungary", "EU", 47.1, 19.3, 1.0),
        (114, "JP", "Japan", "AS", 35.9, 137.9, 1.4),
        (106, "IN", "India", "AS", 21.3, 78.1, 6.0),
        (90, "GR", "Greece", "EU", 39.2, 22.4, 1.1),
        (161, "NZ", "New Zealand", "OC", -39.2, 175.8, 1.5),
        (36, "BR", "Brazil", "SA", -18.4, -46.6, 5.0),
        (208, "ZA", "South Africa", "AF", -28.9, 25.2, 3.0),
        (204, "SK", "Slovakia", "EU", 48.7, 19.4, 0.6),
        (111, "IL", "Israel", "AS", 32.0, 34.9, 0.3),
        (146, "MX", "Mexico", "NA", 21.6, -101.5, 2.6),
        (105, "IS", "Iceland", "EU", 64.6, -19.0, 1.0),
        (132, "LU", "Luxembourg", "EU", 49.7, 6.1, 0.2),
        (50, "CN", "China", "AS", 32.0, 112.9, 5.0),
        (229, "TR", "Turkey", "EU", 39.1, 33.4, 3.0),
    )
)


class Point(NamedTuple):
    """One charge point, encoded once; beside it what a query asks for. Times in seconds since 1970."""

    id: int
    body: bytes
    country: int | None
    updated: float | None
    created: float
    latitude: float | None
    longitude: float | None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MINUTE = int(datetime(2011, 1, 1, tzinfo=UTC).timestamp()) // 60
_LAST_MINUTE = int(datetime(2025, 12, 31, tzinfo=UTC).timestamp()) // 60
_DISORDER = 2 * 365 * 24 * 60
"""Minutes by which a point may be created before or after its neighbours."""
_COUNTRY_WEIGHTS = list(accumulate((rank + 1) ** -1.4 for rank in range(len(COUNTRIES))))
_GAPS, _GAP_WEIGHTS = (1, 2, 3, 5, 200), (0.55, 0.20, 0.15, 0.0995, 0.0005)  # on average 2: half of the ids are holes
_TOWN_STARTS = ("Ober", "Nieder", "West", "Nord", "Grün", "Saint-", "Villa", "Oak", "Stein", "Lind", "Château", "Kirk")
_TOWN_ENDS = ("furt", "ham", "ville", "dorf", "bury", "stad", "berg", "mère", "ford", "holm", "hausen", "bridge")
_PLACES = ("Car Park", "Supermarket", "Town Hall", "Railway Station", "Hotel", "Service Area", "Retail Park", "Stadtwerke")
_STREETS = ("Station Road", "Hauptstraße", "Rue de la Gare", "High Street", "Calle Mayor", "Industrieweg", "Market Square")
_COSTS = ("Free", "0,49 €/kWh", "£0.45/kWh", "Pay by app", "")
_CONNECTIONS = tuple(
    f'"ConnectionTypeID":{kind},"StatusTypeID":50,"LevelID":{level},"Amps":{amps},"Voltage":{volts},'
    f'"PowerKW":{power},"CurrentTypeID":{current},"Quantity":{quantity}}}'
    for kind, level, amps, volts, power, current in (
        (25, 2, 32, 400, 22.0, 20),
        (33, 3, 125, 400, 50.0, 30),
        (33, 3, 500, 920, 350.0, 30),
        (2, 3, 125, 400, 50.0, 30),
        (1, 2, 30, 240, 7.2, 10),
        (28, 1, 16, 230, 3.7, 10),
    )
    for quantity in (1, 2, 4)
)
_BODY = (
    '{"ID":%d,"UUID":"%s-%s-%s-%s-%s","DataProviderID":%d,"OperatorID":%d,"UsageTypeID":%d,"UsageCost":"%s",'
    '"AddressInfo":{"ID":%d,"Title":"%s %s","AddressLine1":"%s %d","Town":"%s","Postcode":"%05d","CountryID":%d,'
    '"Latitude":%r,"Longitude":%r,"Distance":null,"DistanceUnit":0},'
    '"Connections":[%s],"NumberOfPoints":%d,"StatusTypeID":50,"DateLastStatusUpdate":%s,"DataQualityLevel":%d,'
    '"DateCreated":%s,"SubmissionStatusTypeID":200,"IsRecentlyVerified":%s,"DateLastVerified":%s}'
)


def generate(count: int, seed: int, odd_rate: float = 0.005) -> Iterator[Point]:
    """`count` points in ascending order of id; the same arguments give the same points. `odd_rate`: the share of odd rows."""
    dice = random.Random(seed)
    towns = [_towns(dice, country) for country in COUNTRIES]
    countries = dice.choices(range(len(COUNTRIES)), cum_weights=_COUNTRY_WEIGHTS, k=count)
    gaps = dice.choices(_GAPS, _GAP_WEIGHTS, k=count)
    bulk_minutes = [dice.randrange(_FIRST_MINUTE, _LAST_MINUTE) for _ in range(24)]
    step = (_LAST_MINUTE - _FIRST_MINUTE) / max(count, 1)
    for index, identifier in enumerate(accumulate(gaps)):
        created = _FIRST_MINUTE + int(index * step)
        if dice.random() < 0.02:
            created = min(max(created + dice.randrange(-_DISORDER, _DISORDER), _FIRST_MINUTE), _LAST_MINUTE)
        updated = _updated(dice, created, bulk_minutes)
        where = countries[index]
        point = _point(dice, identifier, COUNTRIES[where].id, dice.choice(towns[where]), created, updated)
        yield read_point(odd_point(json.loads(point.body), dice)) if dice.random() < odd_rate else point


def read_point(poi: Mapping[str, Any]) -> Point:
    """A POI given as it is."""
    # ID comes first, so that a spoiled record can be cut from the encoded one.
    ordered = {"ID": poi["ID"], **poi}
    text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    try:
        body = text.encode()
    except UnicodeEncodeError:  # a lone surrogate travels as its escape
        body = json.dumps(ordered, separators=(",", ":")).encode()
    address = poi.get("AddressInfo") or {}
    updated, created = (_seconds(poi.get(name)) for name in ("DateLastStatusUpdate", "DateCreated"))
    place = (address.get("Latitude"), address.get("Longitude"))
    return Point(poi["ID"], body, address.get("CountryID"), updated, created or 0.0, *place)


def read_points(pois: Iterable[Mapping[str, Any]]) -> Iterator[Point]:
    return map(read_point, pois)


def _towns(dice: random.Random, country: Country) -> list[tuple[str, float, float]]:
    """The first ones are listed most often, so that some cells of the map are crowded."""
    towns = [
        (
            dice.choice(_TOWN_STARTS) + dice.choice(_TOWN_ENDS),
            country.latitude + dice.uniform(-country.spread, country.spread),
            country.longitude + dice.uniform(-country.spread, country.spread),
        )
        for _ in range(16)
    ]
    return [town for rank, town in enumerate(towns) for _ in range(32 // (rank + 1))]


def _updated(dice: random.Random, created: int, bulk_minutes: list[int]) -> int | None:
    chance = dice.random()
    if chance < 0.004:
        return None
    if chance < 0.45:  # touched by one of the providers' bulk imports, the first far larger than the last
        bulk = bulk_minutes[int(24 * dice.random() ** 3)]
        if bulk > created:
            return bulk
    return dice.randrange(created, _LAST_MINUTE + 1)


def _point(
    dice: random.Random, identifier: int, country: int, town: tuple[str, float, float], created: int, updated: int | None
) -> Point:
    chance = dice.random
    uuid = f"{dice.getrandbits(128):032X}"
    name, latitude, longitude = town
    latitude = round(latitude + (chance() - 0.5) * 0.4, 6)
    longitude = round(longitude + (chance() - 0.5) * 0.4, 6)
    plugs = int(4 * chance() ** 1.2)  # 0 to 3
    connections = ",".join(
        [f'{{"ID":{identifier * 4 + plug},{_CONNECTIONS[int(18 * chance())]}' for plug in range(plugs)]  # 18 of them
    )
    updated_text = _minute(updated)
    fields = (
        *(identifier, uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]),
        *(1 + int(30 * chance()), 1 + int(400 * chance()), 1 + int(7 * chance()), _COSTS[int(5 * chance())]),
        *(identifier + 41, name, _PLACES[int(8 * chance())], _STREETS[int(7 * chance())], 1 + int(200 * chance())),
        *(name, int(99999 * chance()), country, latitude, longitude),
        *(connections, plugs, updated_text, 1 + int(4 * chance())),
        *(_minute(created), "true" if chance() < 0.3 else "false", updated_text),
    )
    updated_s = None if updated is None else updated * 60.0
    return Point(identifier, (_BODY % fields).encode(), country, updated_s, created * 60.0, latitude, longitude)


def _minute(minute: int | None) -> str:
    return "null" if minute is None else f'"{(_EPOCH + timedelta(minutes=minute)).isoformat()[:19]}Z"'


def _seconds(text: object) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
