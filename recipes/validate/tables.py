"""A report as tables for a terminal."""

from collections.abc import Iterator, Mapping

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from recipes.validate.caches import CacheReport
from recipes.validate.findings import Severity
from recipes.validate.packs import PacksReport
from recipes.validate.report import Report
from recipes.validate.shares import ShareReport
from recipes.validate.sources import SourceReport

PIPE_WIDTH = 150  # characters, where nobody tells how wide the terminal is
_MARKS = {Severity.PROBLEM: "[bold red]problem[/]", Severity.WARNING: "[yellow]warning[/]"}


def show(report: Report, console: Console | None = None) -> None:
    """Print the tables, then every finding on a line of its own, then the verdict."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=PIPE_WIDTH)
    for table in _tables(report):
        console.print(table)
    for found in report.findings:
        line = f"{_MARKS[found.severity]}  [bold]{escape(found.source)}[/]  {found.check}: {escape(found.message)}"
        console.print(line, soft_wrap=True, highlight=False)
    problems, warnings = len(report.problems), len(report.findings) - len(report.problems)
    verdict = f"[bold red]{problems} problem(s)[/]" if problems else "[bold green]no problems[/]"
    console.print(f"{verdict}, {warnings} warning(s)")


def _tables(report: Report) -> Iterator[RenderableType]:
    if report.sources:
        yield _sources_table(report.sources)
    if report.shares:
        yield _shares_table(report.shares)
    if report.packs is not None:
        yield _packs_table(report.packs)
        yield _mix_table(report.packs)
        yield _seconds_table(report.packs)
    for cache in report.caches:
        yield _cache_line(cache)
        yield _cache_table(cache)


def _table(title: str, *columns: str, words: tuple[int, ...] = (0,)) -> Table:
    """Return an empty table; columns of ``words`` are left-aligned, the others hold numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in words else "right")
    return table


def _sources_table(sources: list[SourceReport]) -> Table:
    columns = ("dataset", "paths", "rows", "looked at", "usable", "lost", "tokens: median", "most", "too long")
    table = _table("Datasets", *columns, words=(0, 5))
    for source in sources:
        rows = source.sample
        table.add_row(
            source.name,
            f"{source.paths:,}",
            _count(source.rows),
            f"{rows.looked_at:,}",
            f"{len(rows.lengths):,}",
            _reasons(rows.lost),
            f"{rows.median_tokens:,}",
            f"{rows.most_tokens:,}",
            f"{source.too_long:,}",
        )
    return table


def _shares_table(shares: list[ShareReport]) -> Table:
    table = _table("Paths against ranks x workers", "group", "paths", "ranks", "workers", "paths each", "left out")
    for share in shares:
        counts = (share.paths, share.world_size, max(1, share.num_workers), share.per_worker, share.left_out)
        table.add_row(share.name, *(f"{count:,}" for count in counts))
    return table


def _packs_table(packs: PacksReport) -> Table:
    fills = packs.fills
    table = _table(
        "Packs, drawn without a model",
        *("packs", "samples each", "tokens each", "of at most", "fill", "emptiest", "fullest"),
        words=(),
    )
    count = len(packs.lengths)
    table.add_row(
        f"{count:,}",
        f"{packs.samples / count:.1f}",
        f"{packs.tokens / count:,.0f}",
        f"{packs.capacity:,}",
        *(f"{fill:.1%}" for fill in (sum(fills) / count, min(fills), max(fills))),
    )
    return table


def _mix_table(packs: PacksReport) -> Table:
    columns = ("group", "weight", "by samples", "by tokens", "samples", "tokens each", "lost", "steps per pass")
    table = _table("Mix (a mandatory group has a sample in every pack)", *columns, words=(0, 6))
    for name, group in packs.groups.items():
        table.add_row(
            f"{name} (mandatory)" if group.is_mandatory else name,
            f"{group.weight:.1%}",
            f"{group.samples / packs.samples:.1%}",
            f"{group.tokens / packs.tokens:.1%}",
            f"{group.samples:,}",
            f"{group.tokens / max(1, group.samples):,.0f}",
            _reasons(group.lost),
            "?" if group.steps_per_pass is None else f"{group.steps_per_pass:,.1f}",
        )
    return table


def _seconds_table(packs: PacksReport) -> Table:
    table = _table("Seconds in this process", "stage", "seconds", "a pack", "share")
    total = sum(packs.seconds.values())
    names = {"plan": "read, parse and plan", "decode": "decode and resize", "assemble": "assemble"}
    for stage, seconds in packs.seconds.items():
        each = seconds / len(packs.lengths)
        table.add_row(names[stage], f"{seconds:.2f}", f"{each:.4f}", f"{seconds / total:.0%}")
    table.add_row("all", f"{total:.2f}", f"{total / len(packs.lengths):.4f}", f"{packs.tokens / total:,.0f} tokens/s")
    return table


def _cache_line(cache: CacheReport) -> str:
    counts = f"{cache.items:,} items, {cache.looked_at:,} looked at, {cache.batches_per_pass:,} batches a rank and pass"
    return f"[bold]{cache.name}[/] {escape(cache.cache_dir)}: {counts}"


def _cache_table(cache: CacheReport) -> Table:
    table = _table("", "bucket", "samples", "batch size", "batches", "left out", "repeated")
    for bucket in cache.buckets:
        counts = (bucket.samples, bucket.batch_size, bucket.batches, bucket.lost, bucket.repeated)
        table.add_row(bucket.name, *(f"{count:,}" for count in counts))
    return table


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _reasons(lost: Mapping[str, int]) -> str:
    return "\n".join(f"{count} {reason}" for reason, count in lost.items()) or "-"
