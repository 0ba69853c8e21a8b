"""The verdict of the agreement check as a plain loop: everything is counted anew each time."""

from fedcommons.federate.server.agreement import Pairs, Verdict


def judge(pairs: Pairs) -> Verdict:
    """Who is wrong, as far as pairs tell: the site that disagrees with most, one after another."""
    left, named = dict(pairs), dict[int, str]()
    sites = {place for pair in pairs for place in pair}
    while not all(left.values()):
        found = []
        for place in sorted({place for pair in left for place in pair}):
            for role, what in ((0, "those it sent examples to"), (1, "those it has examples of")):
                mine = [agrees for pair, agrees in left.items() if pair[role] == place]
                n_against = len(mine) - sum(mine)
                if len(mine) >= 2 and 2 * n_against > len(mine):
                    found.append((n_against / len(mine), n_against, -place, role, what, len(mine)))
        if not found:
            break
        _, n_against, minus_place, _, what, n = max(found)
        named[-minus_place] = f"it computes other gradients than {n_against} of {n} of {what}"
        left = {pair: yes for pair, yes in left.items() if -minus_place not in pair}
    disputed = tuple(pair for pair, yes in left.items() if not yes)
    if 2 * len(named) >= max(len(sites), 1):
        return Verdict(len(pairs), {}, tuple(p for p, yes in pairs.items() if not yes), False)
    return Verdict(len(pairs), named, disputed)
