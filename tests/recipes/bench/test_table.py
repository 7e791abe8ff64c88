import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from recipes.bench import table
from recipes.bench.floor import Floor
from recipes.bench.measure import Measurement
from recipes.bench.seconds import Seconds


def measurement(wall: float, rows: str = "same", **fields: float) -> Measurement:
    values = {
        "tokens": 30_000,
        "seconds": Seconds(wall=wall, cpu=2 * wall),
        "first_batch_seconds": 0.5,
        "images_decoded": 9,
        "images_placed": 12,
        "idle_mib": 700.0,
        "peak_mib": 900.0,
        "state_bytes": 7_000,
        "rows": rows,
        "floor": Floor(seconds=Seconds(wall=0.75, cpu=1.5), images=8),
    }
    return Measurement(**(values | fields))


RESULTS = {
    "pillow": [measurement(1.0), measurement(3.0), measurement(1.5)],
    "peer": [measurement(4.0, peak_mib=1100.0, state_bytes=3 * 2**30) for _ in range(3)],
}


def cells(text: str, name: str) -> list[str]:
    """Return the cells of a contestant's row, which is one line."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"│ {name} ")]
    return [cell.strip() for cell in line.strip("│").split("│")]


def rendered(what: Table) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_medians_are_taken_over_the_rounds() -> None:
    assert table.medians(RESULTS, table.FIGURES)["pillow"]["tokens_per_second"] == 20_000
    assert table.medians(RESULTS, table.FIGURES)["pillow"]["floor_share"] == 0.5


def test_ratios_compare_within_a_round() -> None:
    ours = table.ratios(RESULTS, "peer")
    assert list(ours) == ["pillow"]
    assert ours["pillow"]["tokens_per_second"] == [4.0, 4 / 3, 4 / 1.5]
    assert ours["pillow"]["peak_mib_over_idle"] == [0.5] * 3


def test_the_tables_say_it_all_on_one_line_each() -> None:
    figures, compared = rendered(table.figures_table(RESULTS)), rendered(table.ratios_table(RESULTS, "peer"))
    assert cells(figures, "pillow") == [
        "pillow", "20,000", "10,000", "50%", "9 / 8", "900 (200)", "6.84 KiB", "0.50 s"
    ]  # fmt: skip
    assert cells(figures, "peer")[-2] == "3 GiB"
    assert cells(compared, "pillow")[:4] == ["pillow", "2.7 (1.3-4)", "2.7 (1.3-4)", "0.5 (0.5-0.5)"]


def test_contestants_that_packed_other_rows_are_not_passed_off_as_comparable() -> None:
    assert table.same_rows(RESULTS)
    astray = RESULTS | {"peer": [measurement(4.0, rows="other")] * 3}
    assert not table.same_rows(astray)
    assert "ON OTHER ROWS" in rendered(table.ratios_table(astray, "peer"))


def test_the_json_holds_every_round_and_what_was_asked(tmp_path: Path) -> None:
    table.write_json(tmp_path / "bench.json", RESULTS, {"packs": 8}, peer=None)
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["config"] == {"packs": 8}
    assert content["ratios"] is None
    assert [one["seconds"]["wall"] for one in content["rounds"]["pillow"]] == [1.0, 3.0, 1.5]
    assert content["machine"]["cores"] >= 1


def test_bytes_are_spelt_in_the_unit_that_suits_them() -> None:
    assert [table.spell_bytes(count) for count in (12, 7_000, 3 * 2**20, 1.5 * 2**30)] == [
        "12 B",
        "6.84 KiB",
        "3 MiB",
        "1.5 GiB",
    ]
