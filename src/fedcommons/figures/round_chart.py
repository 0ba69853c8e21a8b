"""A chart over the rounds of a federation's training, which needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from fedcommons.figures.markup import Markup, joined, markup

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 260, 64, 30
Points = Sequence[tuple[int, float]]  # (round, value), in the order of the rounds
NO_LINES: Mapping[str, Points] = {}


def chart(label: str, points: Points, beside: Mapping[str, Points] = NO_LINES) -> Markup:
    """A line with a point and its value for each round; thin lines beside it, by their names."""
    everything = [*points, *(point for line in beside.values() for point in line)]
    values = [value for _, value in everything]
    ticks = [float(v) for v in MaxNLocator(5).tick_values(min(values), max(values))]
    low, high = ticks[0], ticks[-1]
    last = max(1, *(t for t, _ in everything))

    def x(t: float) -> float:
        return LEFT + t / last * (WIDTH - LEFT - 14)

    def y(value: float) -> float:
        return 10 + (high - value) / (high - low) * (HEIGHT - BOTTOM - 10)

    def places(line: Points) -> str:
        return " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in line)

    grid = joined(
        Markup(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(v):.1f}" y2="{y(v):.1f}" class="grid"/>'
            f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        )
        for v in ticks
    )
    steps = [int(t) for t in MaxNLocator(6, integer=True).tick_values(0, last) if 0 <= t <= last]
    axis = joined(
        Markup(f'<text x="{x(t):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{t:d}</text>')
        for t in steps
    )
    thin = joined(
        markup(
            '<polyline class="thin" points="$places"><title>$name</title></polyline>',
            places=places(line),
            name=name,
        )
        for name, line in beside.items()
    )
    dots = joined(
        Markup(
            f'<circle cx="{x(t):.1f}" cy="{y(v):.1f}" r="4">'
            f"<title>round {t:d}: {v:.4f}</title></circle>"
        )
        for t, v in points
    )
    return markup(
        '<figure><figcaption class="caption">$label</figcaption>'
        '<svg viewBox="0 0 $width $height" role="img" aria-label="$label">'
        '$grid$axis$thin<polyline points="$line"/>$dots</svg></figure>',
        label=label,
        width=WIDTH,
        height=HEIGHT,
        grid=grid,
        axis=axis,
        thin=thin,
        line=places(points),
        dots=dots,
    )
