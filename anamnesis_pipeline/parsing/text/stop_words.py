"""Words that carry no meaning alone."""

STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    for from get got had has have having he her him his how i if in into is it its just let me my no not of on or our
    out over she should so some such than that the their them then there these they this those to too up us was we
    were what when where which while who whom whose why will with would you your""".split()
)
"""English function words: they match everywhere, cost time, and on the benchmarks cost recall."""
