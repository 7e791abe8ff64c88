"""The benchmark of the data: how fast, how lean, and how near to what decoding, or reading files, alone costs.

::

    config.contestants      the data node, changed a little for each contestant; a peer's class by ``_target_``
      -> contest            rounds A B C A B C, each contestant in a fresh process
           -> measure       tokens, seconds, decoded images, peak memory, resume state of one stream
           -> floor         the same packs' images decoded and resized, and nothing else
      -> table              medians, and ratios of contestants in the same round

Of a latent cache, ``caches`` takes the place of ``measure``, ``floor`` and the tables.
"""
