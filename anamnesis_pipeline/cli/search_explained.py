"""How a search came to its answer, as lines for people. Pure."""

from collections.abc import Mapping
from typing import Any

from anamnesis_pipeline.parsing.text.wording import shown_name


def hit_lines(explanation: Mapping[str, Any]) -> list[str]:
    """Why a hit stands where it does: its rank in each list, then what later stages made of it."""
    places = [f"{name} {place['rank']}" for name, place in explanation.items() if name != "stages"]
    stages = explanation.get("stages") or {}
    if late := stages.get("late"):
        places.append(f"late interaction {late['rank']}")
    worth = [f"{name} x{factor:g}" for name, factor in (stages.get("factors") or {}).items()]
    if company := stages.get("company"):
        worth.append(f"company +{company:g}")
    if (above := stages.get("nearness")) is not None:
        worth.append(f"{above:+.1f} deviations from what is unrelated")
    return [f"ranks: {', '.join(places) or 'none'}", *([f"then: {', '.join(worth)}"] if worth else [])]


def answer_lines(explanation: Mapping[str, Any]) -> list[str]:
    """What was looked through, how sure it is that anything answers, and what was left out."""
    lists = [f"{name} {ranking['found']}" for name, ranking in explanation["lists"].items()]
    lines = [f"Lists (passages): {', '.join(lists) or 'none'}"]
    if times := explanation["time"]:
        span = f"{times['since'] or '...'} to {times['until'] or '...'}"
        lines.append(f"Time: {shown_name(times['words'])} ({times['relation']}), {span}")
    sure, floor = explanation["confidence"], explanation["floor"]
    if sure is not None:
        lines.append(f"Confidence: {sure:.2f}" + (f", the floor is {floor:.2f}" if floor is not None else ", no floor"))
    left = f"{explanation['below_floor']} below the floor, {explanation['folded']} folded into others or further down"
    return [*lines, f"Episodes: {explanation['candidates']} candidates, {left}"]
