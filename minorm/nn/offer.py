"""Offers a state to the modules of a model. Each module takes its entries, and reports missing and unexpected keys.

Programs written for PyTorch override `_load_from_state_dict`. An override may rename keys first, leave out the module's
part, and change the lists of missing and unexpected keys. So the overrides decide which entries are taken and which
keys are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

EXTRA = "_extra_state"


class Offer:
    """Collects the entries that the modules take and the problems that they report.

    taken       the entries to copy, key -> value
    missing     keys of the modules that are not in the state
    unexpected  keys of the state that no module takes
    errors      other problems that overrides report
    """

    def __init__(self, places: Iterable[tuple[str, Any]], own: Iterable[str]) -> None:
        self.places = list(places)  # (prefix, module); a module comes before the modules below it
        self.taken: dict[str, Any] = {}
        self.missing, self.unexpected, self.errors = Lines(self), Lines(self), Lines(self)
        self._prefixes = {prefix for prefix, _ in self.places}
        self._own: dict[str, list[str]] = {}
        for key in own:
            self._own.setdefault(self._prefix(key), []).append(key)

    def show(self, state: Mapping[str, Any]) -> None:
        """Pass each module its part of the state, parents first. The state does not change."""
        parts = {"": Part(self, state)}
        for prefix, place in self.places:
            part = parts.pop(prefix, None) or Part(self)
            place._load_from_state_dict(part, prefix, {}, True, self.missing, self.unexpected, self.errors)
            for key, value in part.items():
                head, dot, _ = key[len(prefix) :].partition(".") if isinstance(key, str) else ("", "", "")
                if dot and key.startswith(prefix):
                    parts.setdefault(f"{prefix}{head}.", Part(self))[key] = value

    def part(self, place: Any, state: Mapping[str, Any], prefix: str) -> tuple[list[str], list[str]]:
        """Take the entries of the module `place` from `state`, and return (missing keys, unexpected keys)."""
        own = self._own.get(prefix, [])
        extra = [prefix + EXTRA] if place._has_extra_state() else []
        self.taken.update({key: state[key] for key in (*own, *extra) if key in state})
        optional = {prefix + name for name in place._optional_keys}
        known = {*own, *extra, *(prefix + name for name in place.ignored_keys)}
        more = [key for key in state if key not in known and self._prefix(key) == prefix]
        return [key for key in own if key not in state and key not in optional], more

    def _prefix(self, key: Any) -> str:
        """Return the longest of the modules' prefixes with which the key begins."""
        head = key if isinstance(key, str) else ""
        while head:
            head = head.rstrip(".").rpartition(".")[0]
            head = head and f"{head}."
            if head in self._prefixes:
                return head
        return ""


class Part(dict[str, Any]):
    """A module's part of the state, with the attribute `offer`. The lists of keys have this attribute too, because an
    override may replace the part or some of the lists by other objects.
    """

    def __init__(self, offer: Offer, state: Mapping[str, Any] | None = None) -> None:
        super().__init__(state or {})
        self.offer = offer


class Lines(list[str]):
    """A list of keys or problems that modules report, with the attribute `offer`."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self.offer = offer


def take(
    place: Any,
    state: Mapping[str, Any],
    prefix: str,
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    """Do the work of `Module._load_from_state_dict` for the module `place`. If strict is True, also add the keys that
    are missing or unexpected to the lists `missing` and `unexpected`.
    """
    given = (state, missing, unexpected, errors)
    offer = next((one.offer for one in given if isinstance(one, Part | Lines)), None)
    if offer is None:
        raise TypeError(
            f"_load_from_state_dict of {type(place).__name__}: neither the state nor one of the lists comes from "
            "load_state_dict; expected at least one of them. To load a module, call load_state_dict"
        )
    lacking, more = offer.part(place, state, prefix)
    if strict:
        missing += lacking
        unexpected += more
