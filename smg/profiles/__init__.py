"""Contracts of vendors. THE table of profiles: a file a vendor, a line a profile."""

from __future__ import annotations

from functools import lru_cache

from smg.profiles.base import Adapted, Baseline, Profile, StreamUsage
from smg.profiles.deepseek_v4 import DeepSeekV4, DeepSeekV41
from smg.profiles.kimi import Kimi, KimiK3
from smg.profiles.minimax import MiniMax
from smg.profiles.zai import Zai, ZaiDefaults, ZaiGlm53

__all__ = ["BASELINE", "PROFILES", "Adapted", "Profile", "StreamUsage", "profile_for"]

BASELINE: Profile = Baseline()

# The first that matches counts: what is special stands before what is general.
PROFILES: tuple[Profile, ...] = (
    KimiK3(),
    Kimi(),
    MiniMax(),
    ZaiGlm53(),
    ZaiDefaults(),
    Zai(),
    DeepSeekV41(),
    DeepSeekV4(),
)
# Longer names are no model's; they are not kept.
_MAX_KEPT_CHARS = 256


def profile_for(model: str) -> Profile:
    """The profile of a model name as it was sent, before aliases are looked up; the OpenAI baseline for most."""
    return _kept(model) if len(model) <= _MAX_KEPT_CHARS else _found(model)


@lru_cache(maxsize=1024)
def _kept(model: str) -> Profile:
    return _found(model)


def _found(model: str) -> Profile:
    segments = model.lower().split("/")
    for profile in PROFILES:
        if profile.pattern is not None and any(map(profile.pattern.match, segments)):
            return profile
    return BASELINE
