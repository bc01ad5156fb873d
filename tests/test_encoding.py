"""What notebook 02 stands on: readings of a text, prices of invalid actions, falls by seed."""

from __future__ import annotations

import pytest

from agentrl_lab.workbook.lessons import encoding as en

QUERY = '<function=query_ticket>{"ticket_id": "S1001"}</function>'


def test_each_reader_reads_its_own_encoding():
    said = en.readings(QUERY).sentence
    assert said.startswith('function: ✔ query_ticket(ticket_id = "S1001"); json: ✘ no_call')
    said = en.readings('{"tool": "query_ticket", "parameters": {"ticket_id": "S1001"}}').sentence
    assert "json: ✔ query_ticket" in said and "function: ✘ no_call" in said
    assert 'id: ✔ query_ticket(ticket_id = "S1001")' in en.readings('0 ["S1001"]').sentence


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<function=close_ticket>{}</function>", "function: ✘ unknown_tool"),
        ("<function=query_ticket>{}</function>", "function: ✘ bad_arguments"),
        ('2 ["closed", "S1001"]', "id: ✘ bad_arguments"),
        ("7 []", "id: ✘ unknown_tool"),
        ("", "function: ✘ no_call"),
    ],
)
def test_what_the_desk_would_refuse_is_said(text, said):
    assert said in en.readings(text).sentence


def test_readings_are_escaped():
    page = en.readings("<function=<b>>{}</function> <script>")
    assert "<script>" not in page.html
    assert "<b>x" not in en.readings('<function=reply>{"content": "<b>x"}</function>').html


def test_prices_by_hand():
    # shaped: 1 + 0.05 quick + 0.03 clean; then the ceiling, 1 less a tenth for each
    paid = [en.paid_after(n, "shaped") for n in range(4)]
    assert paid == pytest.approx([1.08, 0.9, 0.8, 0.7])
    assert [en.paid_after(n, "outcome") for n in range(4)] == [1.0] * 4
    # -1 no reply, -0.15 invalid (capped), -0.15 three strikes
    assert en.paid_for_three_strikes("shaped") == pytest.approx(-1.3)
    assert "shaped 1.08 without and 0.70 with 3" in en.price_picture().sentence
    with pytest.raises(ValueError, match="between 0 and 3, got 4"):
        en.paid_after(4, "shaped")


def rows(function: list[float], numbers: list[float]) -> list[dict]:
    return [
        {"arm": arm, "seed": n, "test_success": 1.0 - n / 10, "elsewhere": {"x": {"success": s}}}
        for arm, shares in (("function", function), ("id", numbers))
        for n, s in enumerate(shares)
    ]


def test_falls_are_paired_by_seed_and_worked_by_hand():
    seen = rows([0.9, 0.7, 0.6], [0.2, 0.1, 0.0])  # trained: 1.0, 0.9, 0.8
    # function loses 0.1, 0.2, 0.2; id loses 0.8, 0.8, 0.8: more by 0.7, 0.6, 0.6
    gap = en.more_lost(seen, "id", "function", "x")
    assert gap.value == pytest.approx(1.9 / 3)
    half = 4.302653 * 0.057735 / 3**0.5  # t(0.975, 2) * sd / sqrt(3)
    assert (gap.low, gap.high) == pytest.approx((gap.value - half, gap.value + half), abs=1e-5)
    assert en.above_half(seen, "id", "x").value == pytest.approx((-0.3 - 0.35 - 0.4) / 3)
    assert en.more_lost(seen[::-1], "id", "function", "x") == gap  # by seed, not by place
    means = en.by_encoding(seen)
    assert list(means) == ["function", "id"] and list(means["id"]) == ["as trained", "x"]
    assert means["id"]["x"].value == pytest.approx(0.1)
