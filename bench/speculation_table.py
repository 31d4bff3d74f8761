"""The report of `bench.speculation` for people."""

from __future__ import annotations

from bench.command import Report
from bench.speculation_sides import OWN


def table(report: Report) -> str:
    lines = [_head(report), _figures(report)]
    if report["projection_of_a_board"]:
        lines.append(
            f"PROJECTION: the target's passes take RK3588's time ({report['projection_of_a_board']})"
        )
    if "simulated_device_ms_per_token" in report:
        pace = report["simulated_device_ms_per_token"]
        lines.append(f"SIMULATED device: {pace:.1f} ms a draft token, nothing computed for it here")
    lines.append(
        "            tokens/s  tokens/pass  nodes/pass  plain  first token  p50 ms  p99 ms  pause p99"
    )
    lines += [_side(name, one) for name, one in report["sides"].items()]
    lines += [_source(name, count) for name, count in report["sides"][OWN]["by_source"].items()]
    lines += _rejections(report["sides"][OWN])
    lines += [
        f"{name}: the draft service was killed {one['draft_kills']} times"
        for name, one in report["sides"].items()
        if one["draft_kills"]
    ]
    lines += [f"together, {key}: {value:.2f}" for key, value in report.get("together", {}).items()]
    lines += [_novelty(name, kind) for name, kind in report.get("by_novelty", {}).items()]
    if "lockstep_computed" in report:
        lines.append(_lockstep(report))
    if "peer" in report:
        lines.append(_peer(report["peer"]))
    return "\n".join(lines)


def _novelty(name: str, kind: Report) -> str:
    return f"{kind['answers']} answers {name.replace('_', ' ')}: {kind['ratio_to_plain']:.2f} x plain"


def _lockstep(report: Report) -> str:
    best = report["lockstep_computed"]
    return (
        f"lock-step (computed), {best['drafted']} drafts a pass: {best['ratio']:.2f} x plain; running ahead "
        f"{report['gain_of_running_ahead']:.2f} x that"
    )


def _peer(peer: Report) -> str:
    rates = ", ".join(f"{mode} {rate:.1f}" for mode, rate in peer["tokens_s"].items())
    return (
        f"{peer['name']} {peer['version']}, tokens/s of {peer['answers']} answers: {rates}; "
        f"we are {peer['ratio_to_best']:.2f} x its best"
    )


def _head(report: Report) -> str:
    equal = report["identical"] and report.get("identical_to_engine", True)
    answers = "equal" if equal else "DIFFERENT"
    how = f", T = {report['temperature']}" if report["temperature"] else ""
    where = f"{report['model']}, {report['threads']} threads{how}"
    return f"{report['workload']}, draft {report['draft']}, {where}; answers {answers}"


def _figures(report: Report) -> str:
    return (
        f"decoding {report['ratio_to_plain']:.2f} x plain (half of the answers {report['ratio_p25']:.2f} "
        f"to {report['ratio_p75']:.2f}), {report['ratio_whole']:.2f} x with the prompts"
    )


def _side(name: str, one: Report) -> str:
    return (
        f"{name:<12}{one['tokens_s']:8.1f} {one['tokens_per_pass']:12.2f} {one['nodes_per_pass']:11.2f} "
        f"{one['share_plain']:6.2f} {one['first_token_ms_p50']:12.0f} {one['inter_token_ms_p50']:7.1f} "
        f"{one['inter_token_ms_p99']:7.1f} {one['pause_ms_p99']:10.1f}"
    )


def _rejections(one: Report) -> list[str]:
    """The verifier's pending trees, and those of a simulated device."""
    counted = {
        "of what was proposed": one["counted_since_start"],
        "of what the simulated device drafted": one.get("simulated_device_counted", {}),
    }
    return [
        f"{count['rejections']} rejections left {count['mean_share']:.2f} {what} (used or kept, mean)"
        for what, count in counted.items()
        if count.get("rejections")
    ]


def _source(name: str, count: Report) -> str:
    rates = " ".join(f"{d}: {c['rate']:.2f} ({c['drafted']})" for d, c in count["by_depth"].items())
    return f"{name}: {count['accepted']} of {count['drafted']} accepted; by depth {rates}"
