"""Look at a run's data before a GPU is touched: what is wrong with it, and what the packs will be like.

::

    every dataset alone   open -> columns (parquet footers) -> a sample of its rows, parsed as in training    sources
    every group           its paths against ranks x workers                                                   shares
    the mixture           packs drawn without a model: fill, losses, mix, steps, seconds                      packs
    a latent cache        metadata, buckets, a sample of its payloads                                         caches
        -> Report: findings, each a problem or a warning -> tables, JSON, exit code
"""
